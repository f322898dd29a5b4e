package tracing

import (
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
)

// settings holds the trace configuration from the variables that OpenTelemetry defines. The SDK and the exporters read
// the other variables themselves, such as those for headers, certificates, sampling and the queue size.
type settings struct {
	endpoint string // where spans are sent, as configured
	protocol string
}

// protocols are the values of OTEL_EXPORTER_OTLP_PROTOCOL. The first is the default.
var protocols = []string{"http/protobuf", "http/json", "grpc"}

// read returns whether traces are enabled, and how. The error for an invalid configuration says what to set.
func read() (s settings, on bool, err error) {
	variable, endpoint := first("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
	if endpoint == "" || strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return settings{}, false, nil
	}
	switch exporter := os.Getenv("OTEL_TRACES_EXPORTER"); exporter {
	case "", "otlp":
	case "none":
		return settings{}, false, nil
	default:
		return settings{}, false, fmt.Errorf("OTEL_TRACES_EXPORTER is %q: set otlp or none", exporter)
	}
	u, err := url.Parse(endpoint)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return settings{}, false, fmt.Errorf("%s is no address of a collector: set http:// or https:// with host and port, like http://collector:4318", variable)
	case u.RawQuery != "":
		return settings{}, false, fmt.Errorf("%s has a query, which may hold a token: put that into OTEL_EXPORTER_OTLP_HEADERS", variable)
	case u.User != nil:
		return settings{}, false, fmt.Errorf("%s holds a user or a token: put it into OTEL_EXPORTER_OTLP_HEADERS", variable)
	}
	if err := checkHeaders(); err != nil {
		return settings{}, false, err
	}
	s = settings{endpoint: endpoint, protocol: protocols[0]}
	if variable, protocol := first("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"); protocol != "" {
		if s.protocol = protocol; !slices.Contains(protocols, protocol) {
			return settings{}, false, fmt.Errorf("%s is %q: set %s", variable, protocol, strings.Join(protocols, " or "))
		}
	}
	return s, true, nil
}

// first returns the first of the variables that is set and not empty.
func first(variables ...string) (variable, value string) {
	for _, variable := range variables {
		if value := os.Getenv(variable); value != "" {
			return variable, value
		}
	}
	return "", ""
}

// checkHeaders returns an error if the exporter could not parse one of its headers and would omit it. The error doesn't
// quote the headers, because they contain credentials.
func checkHeaders() error {
	for _, variable := range []string{"OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"} {
		value := os.Getenv(variable)
		if value == "" {
			continue
		}
		for i, header := range strings.Split(value, ",") {
			name, text, ok := strings.Cut(header, "=")
			_, badName := url.PathUnescape(name)
			_, badText := url.PathUnescape(text)
			if !ok || strings.TrimSpace(name) == "" || badName != nil || badText != nil {
				return fmt.Errorf("%s: header %d cannot be read: set name=value pairs, comma separated, with %%2C for a comma, %%20 for a space and %%25 for %%", variable, i+1)
			}
		}
	}
	return nil
}
