package config

import (
	"fmt"
	"log/slog"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/kelseyhightower/envconfig"
)

// Variable describes a variable to people. Secrets are masked.
type Variable struct {
	Name    string // MILLRACE_BATCH_BYTES
	Default string // the value if the variable is not set; may be empty
	Value   string // the current value, or the text in the environment if that cannot be parsed
	Set     bool   // whether the environment sets it
	Form    string // the possible values, in words
	Meaning string // its meaning, in words
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
	name   string              // the variable's whole name: MILLRACE_NATS_TLS_CA
	prefix string              // the name without the part that the field adds: MILLRACE_NATS_TLS
	decl   reflect.StructField // the declaration in its struct
	value  reflect.Value
}

// read sets the value from the environment. It leaves the value alone if envconfig returns an error.
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

// appendFields appends the variables of the struct of. Their names begin with prefix.
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

// variableName returns the part of a variable's name that a field adds: HTTPAddr adds HTTP_ADDR, NKey adds NKEY.
func variableName(fieldName string) string {
	name := acronymEnd.ReplaceAllString(fieldName, "${1}_${2}")
	return strings.ToUpper(wordEnd.ReplaceAllString(name, "${1}_${2}"))
}

// text returns the value as the user would write it.
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

// joinOr joins words as in a sentence: "a, b or c".
func joinOr(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// wrong returns how the value violates the tags min, max and oneof, or "".
func (f field) wrong() string {
	switch value := f.value.Interface().(type) {
	case int:
		return outside(value, f.decl.Tag, func(s string) int { return must(strconv.Atoi(s)) })
	case Size:
		return outside(value, f.decl.Tag, func(s string) (size Size) { must(0, size.UnmarshalText([]byte(s))); return size })
	case time.Duration:
		return outside(value, f.decl.Tag, func(s string) time.Duration { return must(time.ParseDuration(s)) })
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

// outside returns which bound in its tag a value violates, or "". read parses a bound.
func outside[T int | Size | time.Duration](value T, tag reflect.StructTag, read func(string) T) string {
	switch lo, hi := tag.Get("min"), tag.Get("max"); {
	case value < read(lo):
		return "less than " + lo
	case value > read(hi):
		return "more than " + hi
	}
	return ""
}

// must returns value. It panics on an error, because a tag that cannot be parsed is a bug of this package.
func must[T any](value T, err error) T {
	if err != nil {
		panic("config: bad tag: " + err.Error())
	}
	return value
}
