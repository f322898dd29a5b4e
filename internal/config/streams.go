package config

import (
	"fmt"
	"time"

	"github.com/kelseyhightower/envconfig"
)

const (
	// leastAge is the smallest maximum age of a stream. The result stream must know the id of a result for some time.
	leastAge = time.Minute

	// leastBytes is the smallest maximum size of a stream.
	leastBytes Size = 16 << 20
)

// IsChanged reports whether a variable has another value than its default, given its whole name. A chart that sets every variable changes
// only some.
func (c *Config) IsChanged(variable string) bool {
	defaults := &Config{}
	if err := envconfig.Process(noVariable, defaults); err != nil {
		panic("config: " + err.Error()) // a tag has an unreadable default: a bug that a test checks for
	}
	return c.field(variable).text() != defaults.field(variable).text()
}

// validateStreams checks the settings of the streams that the worker creates.
func (c *Config) validateStreams() {
	const retention = Prefix + "_STREAM_RETENTION"
	for _, age := range []struct {
		variable string
		value    time.Duration
	}{{Prefix + "_STREAM_MAX_AGE", c.StreamMaxAge}, {Prefix + "_RESULT_MAX_AGE", c.ResultMaxAge}, {Prefix + "_DEADLETTER_MAX_AGE", c.DeadletterMaxAge}} {
		if age.value > 0 && age.value < leastAge {
			c.problemDo(age.variable, "less than "+leastAge.String(), fmt.Sprintf("set at least %s, or 0s for no limit", leastAge))
		}
	}
	for _, size := range []struct {
		variable string
		value    Size
	}{{Prefix + "_STREAM_MAX_BYTES", c.StreamMaxBytes}, {Prefix + "_RESULT_MAX_BYTES", c.ResultMaxBytes}, {Prefix + "_DEADLETTER_MAX_BYTES", c.DeadletterMaxBytes}} {
		if size.value > 0 && size.value < leastBytes {
			c.problemDo(size.variable, "less than "+leastBytes.String(), fmt.Sprintf("set at least %s, or 0 for no limit", leastBytes))
		}
	}
	if c.StreamRetention == "limits" && c.StreamTrim == "true" {
		c.problemDo(retention, "limits keeps every input, and "+Prefix+"_STREAM_TRIM=true removes processed ones", "set only one of them")
	}
	if c.Provision && c.StreamRetention == "limits" && c.StreamMaxBytes > 0 && c.StreamMaxAge == 0 {
		c.warn("%s is limits and %s_STREAM_MAX_AGE is 0: an input stream that the worker creates keeps processed inputs, and refuses new ones when it holds %s.",
			retention, Prefix, c.StreamMaxBytes)
	}
}
