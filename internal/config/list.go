package config

import "strings"

// List holds values separated by commas. Spaces around a value are ignored. An empty text is an empty list.
type List []string

// UnmarshalText parses "a, b". It keeps an empty value between commas, which validation reports.
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

// String formats the list so that UnmarshalText parses it.
func (l List) String() string { return strings.Join(l, ",") }
