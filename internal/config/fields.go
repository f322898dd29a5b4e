package config

import (
	"fmt"
	"strings"

	"millrace/internal/frame"
	"millrace/internal/operator"
)

// validateFields checks the settings of fields.
func (c *Config) validateFields() {
	const field, missing, keep = Prefix + "_FIELD", Prefix + "_FIELD_MISSING", Prefix + "_KEEP_FIELDS"
	if c.Field != "" {
		c.validatePath(field, c.Field)
	}
	if c.FieldMissing == "null" && c.Field == "" {
		c.problemDo(missing, "has no effect without "+field, "set both, or unset it")
	}
	if c.FieldMissing == "null" && c.Framing == frame.Arrow {
		c.warn("%s has no effect: %s_FRAMING is arrow, and a null of the column is always null.", missing, Prefix)
	}
	if len(c.KeepFields) > frame.MaxKeep {
		c.problemDo(keep, fmt.Sprintf("names %d fields", len(c.KeepFields)), fmt.Sprintf("name at most %d", frame.MaxKeep))
	}
	for i, name := range c.KeepFields {
		c.validatePath(keep, name)
		for _, other := range c.KeepFields[:i] {
			switch {
			case other == name:
				c.problemDo(keep, fmt.Sprintf("%q is named twice", name), "name each field once")
			case isWithin(name, other) || isWithin(other, name):
				c.problemDo(keep, fmt.Sprintf("one of %q and %q is part of the other", other, name), "name only one of them")
			}
		}
	}
	if len(c.KeepFields) > 0 && c.ResultFormat == operator.Binary {
		c.problemDo(keep, fmt.Sprintf("binary results have no fields, and %s_RESULT_FORMAT is binary", Prefix),
			fmt.Sprintf("set %s_RESULT_FORMAT=json or arrow, or unset it", Prefix))
	}
}

// validatePath records the problem of a path in a variable. A column of an Arrow stream may have any name.
func (c *Config) validatePath(variable, path string) {
	if c.Framing == frame.Arrow {
		return
	}
	if err := frame.CheckPath(path); err != nil {
		c.problemDo(variable, err.Error(), "set a name such as text, or a path such as doc.body")
	}
}

// isWithin reports whether a path leads into the value of another path.
func isWithin(path, other string) bool { return strings.HasPrefix(path, other+".") }
