package config

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/kelseyhightower/envconfig"
)

// Variable describes a variable for people. Secrets are masked.
type Variable struct {
	Name    string // the full name, such as MILLRACE_BATCH_BYTES
	Default string // the value if the variable is not set; may be empty
	Value   string // the current value, or the text in the environment if the text cannot be parsed
	Set     bool   // whether the environment sets the variable
	Form    string // the possible values, in words
	Meaning string // the meaning, in words
}

// Variables returns every variable, in the order of the fields of Config.
func (c *Config) Variables() []Variable {
	fields := c.fields()
	list := make([]Variable, len(fields))
	for i, f := range fields {
		raw, set := c.read.set[f.name]
		v := Variable{Name: f.name, Default: f.decl.Tag.Get("default") + f.decl.Tag.Get("but"), Set: set, Form: f.form(), Meaning: f.decl.Tag.Get("desc")}
		v.Value = mask(f.name, f.text())
		if c.read.unread[f.name] {
			v.Value = mask(f.name, raw)
		}
		list[i] = v
	}
	return list
}

// field is a variable and the field of Config that holds its value.
type field struct {
	name   string              // full name of the variable, such as MILLRACE_NATS_TLS_CA
	prefix string              // name without the field's own part, such as MILLRACE_NATS_TLS
	decl   reflect.StructField // declaration of the field in its struct
	value  reflect.Value
}

// read sets the value from the environment. If envconfig returns an error, the value does not change.
func (f field) read() error {
	decl := reflect.StructField{Name: f.decl.Name, Type: f.decl.Type, Tag: f.decl.Tag}
	alone := reflect.New(reflect.StructOf([]reflect.StructField{decl}))
	if err := envconfig.Process(f.prefix, alone.Interface()); err != nil {
		return err
	}
	f.value.Set(alone.Elem().Field(0))
	return nil
}

// fields returns the variables of c and of its nested structs.
func (c *Config) fields() []field {
	return appendFields(nil, Prefix, reflect.ValueOf(c).Elem())
}

// appendFields appends the variables of the struct in of. Their names begin with prefix.
func appendFields(list []field, prefix string, of reflect.Value) []field {
	for i := range of.NumField() {
		ft := of.Type().Field(i)
		if !ft.IsExported() {
			continue
		}
		name := prefix + "_" + variableName(ft.Name)
		if ft.Type.Kind() == reflect.Struct {
			list = appendFields(list, name, of.Field(i))
			continue
		}
		list = append(list, field{name: name, prefix: prefix, decl: ft, value: of.Field(i)})
	}
	return list
}

var (
	wordEnd    = regexp.MustCompile(`([a-z])([A-Z])`)
	acronymEnd = regexp.MustCompile(`([A-Z]{2,})([A-Z][a-z])`)
)

// variableName returns a field's own part of the variable's name. For example, HTTPAddr gives HTTP_ADDR, and NKey gives
// NKEY.
func variableName(fieldName string) string {
	name := acronymEnd.ReplaceAllString(fieldName, "${1}_${2}")
	return strings.ToUpper(wordEnd.ReplaceAllString(name, "${1}_${2}"))
}

// text returns the value in the syntax of the environment variable.
func (f field) text() string {
	if level, ok := f.value.Interface().(slog.Level); ok {
		return strings.ToLower(level.String())
	}
	return fmt.Sprint(f.value.Interface())
}

// form returns the possible values in words.
func (f field) form() string {
	lo, hi := f.decl.Tag.Get("min"), f.decl.Tag.Get("max")
	switch f.value.Interface().(type) {
	case bool:
		return "true or false"
	case int:
		return fmt.Sprintf("a whole number from %s to %s", lo, hi)
	case Size:
		return fmt.Sprintf("a size from %s to %s", lo, hi)
	case time.Duration:
		return fmt.Sprintf("a duration from %s to %s", lo, hi)
	}
	if words := f.decl.Tag.Get("oneof"); words != "" {
		return joinOr(strings.Split(words, ","))
	}
	return f.decl.Tag.Get("form")
}

// joinOr joins words for a sentence, as in "a, b or c".
func joinOr(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// syntaxes maps each value of the tag "is" to a function that returns a description of a text's problem, or "".
var syntaxes = map[string]func(text string) string{
	"name": wrongName, "prefix": wrongPrefix, "member": wrongMember,
	"streams": wrongStreams, "template": wrongTemplate(wrongName), "prefixes": wrongTemplate(wrongPrefix),
	"address": orEmpty(wrongListen), "file": orEmpty(wrongFile), "domain": orEmpty(wrongDomain), "api": orEmpty(wrongAPIPrefix),
}

// orEmpty returns a check that also permits an empty text.
func orEmpty(wrong func(string) string) func(string) string {
	return func(text string) string {
		if text == "" {
			return ""
		}
		return wrong(text)
	}
}

// wrong returns a description of the first tag (min, max, oneof or is) that the value violates, or "".
func (f field) wrong() string {
	switch value := f.value.Interface().(type) {
	case int:
		return outside(value, f.decl.Tag, func(s string) int { return must(strconv.Atoi(s)) })
	case Size:
		return outside(value, f.decl.Tag, func(s string) (size Size) { must(0, size.UnmarshalText([]byte(s))); return size })
	case time.Duration:
		return outside(value, f.decl.Tag, func(s string) time.Duration { return must(time.ParseDuration(s)) })
	}
	if syntax := f.decl.Tag.Get("is"); syntax != "" {
		return syntaxes[syntax](f.text())
	}
	words := f.decl.Tag.Get("oneof")
	if words == "" {
		return ""
	}
	for word := range strings.SplitSeq(words, ",") {
		if f.text() == word {
			return ""
		}
	}
	return "not a known word"
}

// outside returns a description of the bound that a value violates, or "". read parses a bound in the tag.
func outside[T int | Size | time.Duration](value T, tag reflect.StructTag, read func(string) T) string {
	switch lo, hi := tag.Get("min"), tag.Get("max"); {
	case value < read(lo):
		return "less than " + lo
	case value > read(hi):
		return "more than " + hi
	}
	return ""
}

// must returns value. It panics on an error, because an invalid tag is a bug of this package.
func must[T any](value T, err error) T {
	if err != nil {
		panic("config: bad tag: " + err.Error())
	}
	return value
}

// List holds values separated by commas. Spaces around a value are ignored. An empty text is an empty list.
type List []string

// UnmarshalText parses a list such as "a, b". It keeps an empty value between commas. Validation reports that value.
func (l *List) UnmarshalText(text []byte) error {
	*l = nil
	if strings.TrimSpace(string(text)) == "" {
		return nil
	}
	for value := range strings.SplitSeq(string(text), ",") {
		*l = append(*l, strings.TrimSpace(value))
	}
	return nil
}

// String formats the list in the syntax of UnmarshalText.
func (l List) String() string { return strings.Join(l, ",") }

// Size is a number of bytes. Its text is a whole number with an optional unit.
type Size int64

// sizeUnits maps each unit of Size to its number of bytes. It includes the units of Kubernetes, such as Mi and M, with
// the same meaning.
var sizeUnits = map[string]int64{
	"":    1,
	"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
	"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40,
	"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12,
}

var errSizeForm = errors.New("not a whole number of bytes, KiB, MiB, GiB or TiB (Ki, Mi, Gi or Ti for short), or k, M, G or T (powers of 1000)")

// UnmarshalText parses a size such as "4194304", "4MiB", "4Mi" or "4M". Case matters. UnmarshalText refuses fractions,
// so write "1536KiB" for 1.5 MiB.
func (s *Size) UnmarshalText(text []byte) error {
	trimmed := strings.TrimSpace(string(text))
	unit := strings.TrimLeft(trimmed, "0123456789")
	n, err := strconv.ParseUint(strings.TrimSuffix(trimmed, unit), 10, 63)
	bytes, known := sizeUnits[strings.TrimSpace(unit)]
	switch tooLarge := errors.Is(err, strconv.ErrRange); {
	case !known || err != nil && !tooLarge:
		return errSizeForm
	case tooLarge || n > uint64(math.MaxInt64/bytes):
		return fmt.Errorf("more than %d bytes", int64(math.MaxInt64))
	}
	*s = Size(int64(n) * bytes)
	return nil
}

// String formats the size in the largest of the units KiB, MiB, GiB and TiB that divides it. UnmarshalText parses the
// result.
func (s Size) String() string {
	for _, unit := range []string{"TiB", "GiB", "MiB", "KiB"} {
		if bytes := sizeUnits[unit]; s != 0 && int64(s)%bytes == 0 {
			return strconv.FormatInt(int64(s)/bytes, 10) + unit
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// Print writes a table of all variables with their current value, its source, the default and the meaning. The source
// is "set" if the environment sets the variable, otherwise "default". Print masks secrets and does not read files.
func (c *Config) Print(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	lines := [][]string{{"VARIABLE", "VALUE", "FROM", "DEFAULT", "MEANING"}}
	for _, v := range c.Variables() {
		from := "default"
		if v.Set {
			from = "set"
		}
		lines = append(lines, []string{v.Name, orDash(v.Value), from, orDash(v.Default), v.Meaning})
	}
	for _, line := range lines {
		if _, err := io.WriteString(table, strings.Join(line, "\t")+"\n"); err != nil {
			return err
		}
	}
	return table.Flush()
}

// orDash returns "-" for an empty cell. It replaces control characters in other cells with spaces.
func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return strings.Map(func(r rune) rune {
		if r < ' ' { // a tab or a line feed would break the table
			return ' '
		}
		return r
	}, s)
}
