package config

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"millrace/internal/filter"
	"millrace/internal/operator"
	"millrace/internal/wildcard"
)

// validate records every problem of the values that could be parsed.
func (c *Config) validate(find Finder) {
	for _, f := range c.fields() {
		if c.read.unread[f.name] {
			continue
		}
		if what := f.wrong(); what != "" {
			c.problem(f.name, what)
		}
	}
	c.validateServer()
	c.validateNames()
	c.validateDevices()
	c.validateAddresses()
	c.validateTimes()
	c.validateStreams()
	c.validateExactlyOnce()
	c.parseOperators(find)
	c.validateState()
	c.validateFields()
	c.validateFrames()
	c.parseFilter()
	if c.DataDir == "" && c.Embedded() {
		c.problem(Prefix+"_DATA_DIR", "empty")
	}
}

func (c *Config) parseOperators(find Finder) {
	if len(c.Operators) == 0 {
		c.problem(Prefix+"_OPERATORS", "empty")
		return
	}
	var sources []operator.Source
	var err error
	if find != nil {
		sources, err = find(c)
	}
	if err != nil {
		c.problem(Prefix+"_OPERATOR_PATH", err.Error())
	}
	if c.operators, err = operator.ParseList(c.Operators.String(), sources...); err != nil {
		c.problem(Prefix+"_OPERATORS", err.Error())
		return
	}
	for _, s := range sources {
		switch err := s.Err(); {
		case err == nil:
		case slices.ContainsFunc(c.operators, func(op operator.Operator) bool { return op.Name() == s.Name() }):
			c.problem(Prefix+"_OPERATOR_PATH", err.Error()) // a built-in operator has the same name
		default:
			c.warn("%s_OPERATOR_PATH has an operator that can't be used: %v", Prefix, err)
		}
	}
}

// parseFilter compiles the filter. Without valid operators, its variables are unknown.
func (c *Config) parseFilter() {
	if c.Filter == "" || c.operators == nil {
		return
	}
	var err error
	if c.filter, err = filter.New(c.Filter, c.operators, c.KeepFields); err != nil {
		c.problemDo(Prefix+"_FILTER", err.Error(), "write a condition in CEL over "+filter.Names(c.operators, c.KeepFields)+"; see docs/text.md")
	}
}

// validateServer checks the addresses of the NATS servers and the files with credentials.
func (c *Config) validateServer() {
	sockets := 0
	for _, server := range c.NATS.URL {
		if isWebSocket(server) {
			sockets++
		}
		what := wrongServer(server)
		if what == "" {
			continue
		}
		if strings.Contains(c.NATS.URL.String(), "@") {
			c.problemDo(Prefix+"_NATS_URL", what, "percent-encode the special characters of user, password and token (%2F for /, %3F for ?, %23 for #, %25 for %, "+
				"%2C for a comma), and set "+c.field(Prefix+"_NATS_URL").form())
		} else {
			c.problem(Prefix+"_NATS_URL", what)
		}
		break
	}
	if sockets != 0 && sockets != len(c.NATS.URL) {
		c.problemDo(Prefix+"_NATS_URL", "WebSocket addresses are mixed with others", "use only ws:// and wss:// addresses, or none")
	}
	for _, f := range c.fields() {
		if strings.HasPrefix(f.name, Prefix+"_NATS_") && f.name != Prefix+"_NATS_CONNECTIONS" && c.Embedded() && c.IsChanged(f.name) {
			c.warn("%s has no effect: %s_NATS_URL is empty, so the worker uses its embedded server.", f.name, Prefix)
		}
	}
	if c.NATS.JS.Domain != "" && c.NATS.JS.Prefix != "" {
		c.problemDo(Prefix+"_NATS_JS_PREFIX", Prefix+"_NATS_JS_DOMAIN is set too", "unset one of them")
	}
	if c.NATS.Creds != "" && c.NATS.NKey != "" {
		c.problemDo(Prefix+"_NATS_NKEY", Prefix+"_NATS_CREDS is set too", "unset one of them")
	}
	c.validatePair(Prefix+"_NATS_TLS_CERT", c.NATS.TLS.Cert, Prefix+"_NATS_TLS_KEY", c.NATS.TLS.Key)
	c.validatePair(Prefix+"_NATS_TLS_KEY", c.NATS.TLS.Key, Prefix+"_NATS_TLS_CERT", c.NATS.TLS.Cert)
}

// validatePair records a problem if variable is set without the variable other, which it requires. value and
// otherValue are their values.
func (c *Config) validatePair(variable, value, other, otherValue string) {
	if value != "" && otherValue == "" {
		c.problemDo(variable, "has no effect without "+other, "set both or neither")
	}
}

// validateSubjects compares the input's filters with the prefixes of results and dead letters. A worker that consumed
// its own results would never finish.
func (c *Config) validateSubjects() {
	const subjects, results, dead = Prefix + "_SUBJECTS", Prefix + "_RESULT_PREFIX", Prefix + "_DEADLETTER_PREFIX"
	if len(c.Subjects) == 0 {
		c.problem(subjects, "empty")
	}
	valid := c.validFilters(subjects)
	for _, p := range []struct{ variable, prefix, other string }{{results, c.ResultPrefix, c.DeadletterPrefix}, {dead, c.DeadletterPrefix, c.ResultPrefix}} {
		if wrongPrefix(p.prefix) != "" {
			continue
		}
		for _, filter := range valid {
			if under(filter, p.prefix) {
				c.problemDo(p.variable, fmt.Sprintf("the input %q of %s matches what the worker publishes there, so the worker would feed itself", filter, subjects),
					"set another prefix or narrower subjects")
			}
		}
		if wrongPrefix(p.other) == "" && p.variable == dead && (under(p.prefix, p.other) || under(p.other, p.prefix)) {
			c.problemDo(dead, "dead letters and results would share subjects, since "+results+" is "+p.other, "set a prefix that does not overlap it")
		}
	}
}

// validFilters records the problems of the input's filters as problems of variable, and returns the valid filters.
func (c *Config) validFilters(variable string) (valid []string) {
	for _, filter := range c.Subjects {
		if what := WrongFilter(filter); what != "" {
			c.problem(variable, what)
			continue
		}
		for _, earlier := range valid {
			if wildcard.Overlap(earlier, filter) {
				c.problemDo(variable, fmt.Sprintf("%q and %q match the same subjects", earlier, filter), "keep the wider one: a consumer's filters must not overlap")
			}
		}
		valid = append(valid, filter)
	}
	return valid
}

// gpuUUID matches a GPU's UUID in the form that nvidia-smi -L prints.
var gpuUUID = regexp.MustCompile(`^GPU-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

// maxOrdinal is the largest accepted GPU ordinal. No machine has more GPUs.
const maxOrdinal = 1023

func (c *Config) validateDevices() {
	const devices = Prefix + "_DEVICES"
	if len(c.Devices) == 0 {
		c.problem(devices, "empty")
	}
	for i, d := range c.Devices {
		ordinal, err := strconv.Atoi(d)
		isOrdinal := err == nil && ordinal >= 0 && ordinal <= maxOrdinal && strconv.Itoa(ordinal) == d
		switch {
		case d == "all" && len(c.Devices) > 1:
			c.problem(devices, "all excludes other entries")
		case slices.Contains(c.Devices[:i], d):
			c.problemDo(devices, fmt.Sprintf("%q is named twice", d), "name each GPU once")
		case d != "all" && !isOrdinal && !gpuUUID.MatchString(d):
			c.problem(devices, fmt.Sprintf("%q is neither the ordinal nor the UUID of a GPU", d))
		}
	}
	if c.Device == "host" && c.IsSet(devices) && !slices.Equal(c.Devices, List{"all"}) {
		c.warn("%s has no effect: it names GPUs, but %s_DEVICE is host.", devices, Prefix)
	}
}

// validateAddresses compares the addresses of the HTTP servers.
func (c *Config) validateAddresses() {
	const public, debug = Prefix + "_HTTP_ADDR", Prefix + "_DEBUG_ADDR"
	if c.DebugAddr == "" || wrongListen(c.DebugAddr) != "" {
		return
	}
	if c.HTTPAddr != "" && collide(c.HTTPAddr, c.DebugAddr) {
		c.problemDo(debug, "the same as "+public, "set another port")
	}
	if !isLoopback(c.DebugAddr) {
		c.warn("%s is open to every machine that can reach %s, and serves profiles of this process: use 127.0.0.1 to allow only this machine.", debug, c.DebugAddr)
	}
}

// validateTimes compares durations and counts with each other.
func (c *Config) validateTimes() {
	if c.AckWait > 0 && c.Linger >= c.AckWait {
		c.problemDo(Prefix+"_LINGER", fmt.Sprintf("not less than %s_ACK_WAIT, so the server would redeliver payloads that wait", Prefix), "set less than "+c.AckWait.String())
	}
	if c.BatchDeadlineMin > c.BatchDeadlineMax {
		c.problemDo(Prefix+"_BATCH_DEADLINE_MIN", fmt.Sprintf("more than %s_BATCH_DEADLINE_MAX", Prefix), "set at most "+c.BatchDeadlineMax.String())
	}
	if c.MaxAckPending > 0 && c.MaxAckPending < c.BatchPayloads && c.Provision {
		c.warn("%s_MAX_ACK_PENDING is %d, less than the %d payloads of %s_BATCH_PAYLOADS: no batch can reach that count.",
			Prefix, c.MaxAckPending, c.BatchPayloads, Prefix)
	}
}
