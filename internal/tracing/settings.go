package tracing

import (
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
)

// settings are what the environment says of traces, in the variables that OpenTelemetry names. What is not read here, such as
// headers, certificates, sampling and the size of the queue, its SDK and exporters read themselves.
type settings struct {
	endpoint string // where spans go, as it was set
	protocol string
}

// Protocols of OTEL_EXPORTER_OTLP_PROTOCOL. The first is the default.
var protocols = []string{"http/protobuf", "http/json", "grpc"}

// read says whether traces are asked for, and how. It fails with what to set where the environment cannot be meant so.
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

// first is the first of the variables that is set to something.
func first(variables ...string) (variable, value string) {
	for _, variable := range variables {
		if value := os.Getenv(variable); value != "" {
			return variable, value
		}
	}
	return "", ""
}

// checkHeaders finds what the exporter could not read of its headers, and would leave out. The error quotes none of it: they
// hold logins.
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
