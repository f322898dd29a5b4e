package config

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A shard is one input stream with its consumer and its result stream. MILLRACE_STREAM may name many. The other names are templates, in
// which {0} is the name of the input stream, and {1} is the part of it that the first * of the pattern stands for.

// Patterns returns the names and patterns of MILLRACE_STREAM. A * in a pattern stands for any characters.
func (c *Config) Patterns() []string {
	var all []string
	for _, p := range strings.Split(c.Stream, ",") {
		all = append(all, strings.TrimSpace(p))
	}
	return all
}

// IsMany reports whether MILLRACE_STREAM has several names, or a pattern.
func (c *Config) IsMany() bool { return strings.ContainsAny(c.Stream, ",*") }

// IsPattern reports whether an entry of MILLRACE_STREAM is a pattern, and not a name.
func IsPattern(entry string) bool { return strings.Contains(entry, "*") }

// Matches reports whether a stream is one of the input streams.
func (c *Config) Matches(stream string) bool {
	return slices.ContainsFunc(c.Patterns(), func(p string) bool { return matchesPattern(p, stream) })
}

func matchesPattern(pattern, stream string) bool {
	ok, err := path.Match(pattern, stream) // names have no slash and no other special character
	return ok && err == nil
}

// Shard returns the configuration for one of the input streams. Without MILLRACE_SUBJECTS, the worker reads all subjects of the stream. These
// are subjects, or, if they are empty, the stream's name in lower case and below. It returns an error if the names conflict.
func (c *Config) Shard(stream string, subjects []string) (*Config, error) {
	s := c.shard(stream, subjects)
	s.read.problems = nil
	if what := wrongName(s.ResultStream); what != "" {
		s.problemDo(Prefix+"_RESULT_STREAM", fmt.Sprintf("the result stream of %s would be %q: %s", stream, s.ResultStream, what), "correct the template")
	}
	for _, output := range []string{s.ResultStream, s.ResultStream + deadLetters} {
		if c.IsMany() && c.Matches(output) {
			s.problemDo(Prefix+"_RESULT_STREAM", fmt.Sprintf("the results or dead letters of %s go to %s, which is also an input stream by %s_STREAM", stream, output, Prefix),
				"set another name, or a narrower pattern")
		}
	}
	s.validateNames()
	if len(s.read.problems) > 0 {
		return nil, &Error{Problems: s.read.problems}
	}
	return s, nil
}

// deadLetters is the end of the name of a stream of dead letters that the worker creates.
const deadLetters = "_DEADLETTER"

// IsWhole reports whether the worker reads all subjects of an input stream: there are several, and MILLRACE_SUBJECTS isn't set.
func (c *Config) IsWhole() bool { return c.whole }

// shard is like Shard, without the checks.
func (c *Config) shard(stream string, subjects []string) *Config {
	expand := func(text string) string {
		for i, part := range append([]string{stream}, c.parts(stream)...) {
			text = strings.ReplaceAll(text, fmt.Sprintf("{%d}", i), part)
		}
		return text
	}
	s := *c
	s.Stream, s.ResultStream = stream, expand(c.ResultStream)
	s.ResultPrefix, s.DeadletterPrefix = expand(c.prefix("_RESULT_PREFIX", c.ResultPrefix)), expand(c.prefix("_DEADLETTER_PREFIX", c.DeadletterPrefix))
	s.Subjects = nil
	for _, subject := range c.Subjects {
		s.Subjects = append(s.Subjects, expand(subject))
	}
	if s.whole = c.IsMany() && !c.IsSet(Prefix+"_SUBJECTS"); s.whole {
		if s.Subjects = subjects; len(subjects) == 0 {
			s.Subjects = List{strings.ToLower(stream) + ".>"}
		}
	}
	return &s
}

// parts returns the parts of a stream's name that the * of its pattern stand for.
func (c *Config) parts(stream string) []string {
	for _, p := range c.Patterns() {
		text := "^" + strings.ReplaceAll(regexp.QuoteMeta(p), `\*`, "(.*?)") + "$"
		if found := regexp.MustCompile(text).FindStringSubmatch(stream); found != nil {
			return found[1:]
		}
	}
	return nil
}

// placeholder matches {0} and {1} in a template.
var placeholder = regexp.MustCompile(`\{(\d+)\}`)

// placeholders returns the different placeholders in a text, in order.
func placeholders(text string) []string {
	return slices.Compact(slices.Sorted(slices.Values(placeholder.FindAllString(text, -1))))
}

// prefix returns a prefix of subjects. If it isn't set and each input stream has its own result stream, it gets the placeholders of
// MILLRACE_RESULT_STREAM, because two streams can't store the same subjects.
func (c *Config) prefix(variable, value string) string {
	if c.IsSet(Prefix + variable) {
		return value
	}
	return strings.Join(append([]string{value}, placeholder.FindAllString(c.ResultStream, -1)...), "-")
}

// validateNames checks the names of the streams and their subjects. With several input streams, it checks the names of a sample for each
// name or pattern.
func (c *Config) validateNames() {
	if !c.IsMany() && !strings.Contains(c.ResultStream+c.ResultPrefix+c.DeadletterPrefix+c.Subjects.String(), "{") {
		c.validateShard()
		return
	}
	if !c.validateTemplates() {
		return
	}
	for _, p := range c.Patterns() {
		s := c.shard(strings.ReplaceAll(p, "*", "x"), nil)
		s.validateShard()
		if c.read = s.read; len(c.read.problems) > 0 {
			return // the others would repeat it
		}
	}
}

// validateShard checks the names of a single shard.
func (c *Config) validateShard() {
	if c.Provision && c.Stream == c.ResultStream {
		c.problemDo(Prefix+"_RESULT_STREAM", "the same as "+Prefix+"_STREAM", "set another name: the worker creates two streams")
	}
	c.validateSubjects()
	c.validateCommitPrefix()
}

// validateTemplates checks the templates. It returns false if one of them can't be filled in.
func (c *Config) validateTemplates() (ok bool) {
	const stream, results, subjects = Prefix + "_STREAM", Prefix + "_RESULT_STREAM", Prefix + "_SUBJECTS"
	before := len(c.read.problems)
	fewest := 9
	for _, p := range c.Patterns() {
		fewest = min(fewest, strings.Count(p, "*"))
	}
	for variable, text := range map[string]string{
		results: c.ResultStream, Prefix + "_RESULT_PREFIX": c.ResultPrefix, Prefix + "_DEADLETTER_PREFIX": c.DeadletterPrefix, subjects: c.Subjects.String(),
	} {
		for _, found := range placeholder.FindAllStringSubmatch(text, -1) {
			if n, err := strconv.Atoi(found[1]); err != nil || n > fewest {
				c.problemDo(variable, fmt.Sprintf("%s stands for a * that a name or pattern of %s doesn't have", found[0], stream), "use {0} for the whole name of the input stream")
			}
		}
		if strings.ContainsAny(placeholder.ReplaceAllString(text, ""), "{}") {
			c.problemDo(variable, "has braces that are no placeholder", "use {0} for the name of the input stream, or {1} for what the first * stands for")
		}
	}
	if !c.IsMany() {
		return len(c.read.problems) == before
	}
	for _, p := range []struct{ variable, value string }{{"_RESULT_PREFIX", c.ResultPrefix}, {"_DEADLETTER_PREFIX", c.DeadletterPrefix}} {
		have := placeholders(c.prefix(p.variable, p.value))
		if len(have) == 0 && p.variable == "_DEADLETTER_PREFIX" && c.Delivery != "exclusive" {
			continue // one stream stores all dead letters
		}
		if !slices.Equal(placeholders(c.ResultStream), have) {
			c.problemDo(Prefix+p.variable, "has other placeholders than "+results+", so streams would share subjects",
				"use the same placeholders in both, such as RESULTS-{0} and results-{0}, or none, so that one stream stores all results")
		}
	}
	if own := len(placeholders(c.ResultStream)) > 0; !own && c.Delivery == "exclusive" {
		c.problemDo(results, "with exclusive delivery, results of several input streams can't be in one stream", "set a template, such as RESULTS-{0}")
	}
	for _, p := range c.Patterns() {
		s := c.shard(strings.ReplaceAll(p, "*", "x"), nil)
		for _, output := range []string{s.ResultStream, s.ResultStream + deadLetters} {
			if c.Matches(output) {
				c.problemDo(results, fmt.Sprintf("%s is also an input stream by %s, so the worker would feed itself", output, stream),
					"set another name, or a narrower pattern")
				break
			}
		}
	}
	if c.IsSet(subjects) && !placeholder.MatchString(c.Subjects.String()) && !strings.Contains(c.Stream, "*") && c.Provision {
		c.problemDo(subjects, "the streams of "+stream+" can't have the same subjects", "unset it, or use {0} for the name of the stream")
	}
	return len(c.read.problems) == before
}

// wrongStreams checks a list of stream names and patterns.
func wrongStreams(list string) string {
	if list == "" {
		return "empty"
	}
	var names []string
	for p := range strings.SplitSeq(list, ",") {
		name := strings.TrimSpace(p)
		switch what := wrongName(strings.ReplaceAll(name, "*", "x")); {
		case what == "empty":
			return "a name in the list is empty"
		case what != "":
			return what
		case strings.ContainsAny(name, "[]?{}"):
			return "a name or pattern may contain none of [ ] ? { }"
		case slices.Contains(names, name):
			return fmt.Sprintf("%q is named twice", name)
		}
		names = append(names, name)
	}
	return ""
}

// wrongTemplate returns a check of texts with placeholders.
func wrongTemplate(wrong func(string) string) func(string) string {
	return func(text string) string { return wrong(placeholder.ReplaceAllString(text, "x")) }
}
