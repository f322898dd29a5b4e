package config

import (
	"fmt"
	"strings"
	"time"

	"github.com/kelseyhightower/envconfig"

	"millrace/internal/compression"
	"millrace/internal/frame"
	"millrace/internal/operator"
)

// This file checks the settings of streams, of exactly-once delivery and of frames. These settings depend on each
// other.

const (
	// minAge is the smallest permitted maximum age of a stream. The duplicate window can't exceed the maximum age.
	minAge = time.Minute

	// minBytes is the smallest permitted maximum size of a stream.
	minBytes Size = 16 << 20
)

// IsChanged reports whether the variable with the given full name differs from its default. A Helm chart may set
// every variable but change only some of them.
func (c *Config) IsChanged(variable string) bool {
	defaults := &Config{}
	if err := envconfig.Process(noVariable, defaults); err != nil {
		panic("config: " + err.Error()) // the default in a tag is invalid, which a test prevents
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
		if age.value > 0 && age.value < minAge {
			c.problemDo(age.variable, "less than "+minAge.String(), fmt.Sprintf("set at least %s, or 0s for no limit", minAge))
		}
	}
	for _, size := range []struct {
		variable string
		value    Size
	}{{Prefix + "_STREAM_MAX_BYTES", c.StreamMaxBytes}, {Prefix + "_RESULT_MAX_BYTES", c.ResultMaxBytes}, {Prefix + "_DEADLETTER_MAX_BYTES", c.DeadletterMaxBytes}} {
		if size.value > 0 && size.value < minBytes {
			c.problemDo(size.variable, "less than "+minBytes.String(), fmt.Sprintf("set at least %s, or 0 for no limit", minBytes))
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

// validateExactlyOnce checks the settings that need exclusive delivery.
func (c *Config) validateExactlyOnce() {
	const exactlyOnce, ids, delivery = Prefix + "_EXACTLY_ONCE", Prefix + "_RESULT_IDS", Prefix + "_DELIVERY"
	exclusive := c.Delivery == "exclusive"
	if c.ExactlyOnce == "required" && !exclusive {
		c.problemDo(exactlyOnce, "shared delivery can't store results exactly once", fmt.Sprintf("set %s=exclusive, or set auto", delivery))
	}
	switch {
	case c.Result.IDs:
	case !exclusive:
		c.problemDo(ids, "shared delivery needs the ids to recognize results that are stored already", fmt.Sprintf("set %s=exclusive, or set true", delivery))
	case c.ExactlyOnce == "off":
		c.problemDo(ids, "without exactly once, the worker needs the ids to recognize results that are stored already", fmt.Sprintf("set %s=auto or required, or set true", exactlyOnce))
	}
}

// Stateful returns the stateful operator among the operators, or nil.
func (c *Config) Stateful() operator.Stateful {
	if all := c.stateful(); len(all) > 0 {
		return all[0]
	}
	return nil
}

func (c *Config) stateful() (all []operator.Stateful) {
	for _, op := range c.operators {
		if s, ok := op.(operator.Stateful); ok {
			all = append(all, s)
		}
	}
	return all
}

// validateState checks the settings that a stateful operator needs. Without such an operator, it warns about settings of states.
func (c *Config) validateState() {
	all := c.stateful()
	if len(all) == 0 {
		for _, f := range c.fields() {
			if strings.HasPrefix(f.name, Prefix+"_STATE_") && c.operators != nil && c.IsChanged(f.name) {
				c.warn("%s has no effect: no operator of %s_OPERATORS is stateful.", f.name, Prefix)
			}
		}
		return
	}
	name := all[0].Name()
	if len(all) > 1 {
		c.problemDo(Prefix+"_OPERATORS", fmt.Sprintf("%s and %s are stateful operators", name, all[1].Name()),
			"name only one of them, and run the other one in a second deployment")
	}
	if c.Delivery != "exclusive" {
		c.problemDo(Prefix+"_DELIVERY", "results of operator "+name+" depend on the order of the records, which shared delivery doesn't keep", "set exclusive")
	}
	if c.IsMany() {
		c.problemDo(Prefix+"_STREAM", "operator "+name+" has a state, which only a worker of a single stream keeps", "name one stream, and run a deployment for each")
	}
	if c.ExactlyOnce == "off" {
		c.problemDo(Prefix+"_EXACTLY_ONCE", "the state of operator "+name+" is stored with the commit markers of exactly once", "set auto or required")
	}
}

// validateCommitPrefix compares the prefix of commit markers with other subjects. It does so only if the worker may
// store commit markers.
func (c *Config) validateCommitPrefix() {
	const commits, subjects = Prefix + "_COMMIT_PREFIX", Prefix + "_SUBJECTS"
	if wrongPrefix(c.CommitPrefix) != "" || c.Delivery != "exclusive" || c.ExactlyOnce == "off" {
		return
	}
	for _, filter := range c.Subjects {
		if WrongFilter(filter) == "" && under(filter, c.CommitPrefix) {
			c.problemDo(commits, fmt.Sprintf("the input %q of %s matches commit markers, so the worker would feed itself", filter, subjects),
				"set another prefix or narrower subjects")
		}
	}
	for _, other := range []struct{ variable, prefix, of string }{
		{Prefix + "_RESULT_PREFIX", c.ResultPrefix, "results"}, {Prefix + "_DEADLETTER_PREFIX", c.DeadletterPrefix, "dead letters"},
	} {
		if wrongPrefix(other.prefix) == "" && (under(c.CommitPrefix, other.prefix) || under(other.prefix, c.CommitPrefix)) {
			c.problemDo(commits, fmt.Sprintf("commit markers and %s would share subjects, since %s is %s", other.of, other.variable, other.prefix),
				"set a prefix that does not overlap it")
		}
	}
}

// validateFrames checks settings that have no effect without a framing or compression.
func (c *Config) validateFrames() {
	if c.Framing != frame.None {
		return
	}
	if c.FrameRecords != frame.DefaultMaxRecords {
		c.warn("%s_FRAME_RECORDS has no effect: %s_FRAMING is none.", Prefix, Prefix)
	}
	if c.Decompress == compression.None && c.FrameBytes != frame.DefaultMaxBytes {
		c.warn("%s_FRAME_BYTES has no effect: %s_FRAMING and %s_DECOMPRESS are none.", Prefix, Prefix, Prefix)
	}
}
