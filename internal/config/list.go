package config

import "strings"

// List is values separated by commas. Space around a value is dropped; an empty text is an empty list.
type List []string

// UnmarshalText reads "a, b". An empty value between commas is kept, for validation to name.
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

// String writes the list as UnmarshalText reads it.
func (l List) String() string { return strings.Join(l, ",") }
