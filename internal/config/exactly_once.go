package config

import "fmt"

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

// validateCommitPrefix checks the prefix of commit markers. Other subjects matter only if the worker may store markers.
func (c *Config) validateCommitPrefix() {
	const commits, subjects = Prefix + "_COMMIT_PREFIX", Prefix + "_SUBJECTS"
	if what := wrongPrefix(c.CommitPrefix); what != "" {
		c.problem(commits, what)
		return
	}
	if c.Delivery != "exclusive" || c.ExactlyOnce == "off" {
		return
	}
	for _, filter := range c.Subjects {
		if wrongFilter(filter) == "" && under(filter, c.CommitPrefix) {
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
