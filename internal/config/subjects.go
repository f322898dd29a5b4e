package config

import "strings"

// wrongFilter says what is wrong with a NATS subject filter; empty if nothing is. A filter is tokens joined
// by dots, where the token * stands for any one and a last token > for one or more.
// Source: the NATS documentation, "Subject-Based Messaging".
func wrongFilter(filter string) string {
	if filter == "" {
		return "a subject in the list is empty"
	}
	if strings.ContainsFunc(filter, blank) {
		return "subjects hold no spaces"
	}
	tokens := strings.Split(filter, ".")
	for i, token := range tokens {
		switch {
		case token == "":
			return "a subject has an empty token"
		case token == ">" && i != len(tokens)-1:
			return "the wildcard > is only the last token of a subject"
		case len(token) > 1 && strings.ContainsAny(token, "*>"):
			return "a wildcard is a token by itself"
		}
	}
	if reserved(tokens[0]) {
		return "subjects that begin with $ or _INBOX are the server's own"
	}
	return ""
}

// wrongPrefix says what is wrong with tokens that are put in front of a subject; empty if nothing is.
func wrongPrefix(prefix string) string {
	if prefix == "" {
		return "empty"
	}
	if strings.ContainsAny(prefix, "*>") {
		return "a prefix holds no wildcards"
	}
	return wrongFilter(prefix)
}

// wrongName says what is wrong with the name of a stream or a consumer; empty if nothing is. The server
// takes no dots, wildcards or blanks, and no slashes, since it makes directories of names.
func wrongName(name string) string {
	switch {
	case name == "":
		return "empty"
	case len(name) > 255:
		return "longer than 255 bytes"
	case strings.ContainsAny(name, `.*>/\`) || strings.ContainsFunc(name, blank):
		return `names hold none of . * > / \ and no spaces`
	}
	return ""
}

func blank(r rune) bool { return r <= ' ' || r == 0x7f }

func reserved(token string) bool { return strings.HasPrefix(token, "$") || token == "_INBOX" }

// overlap says whether some subject matches both filters.
func overlap(a, b string) bool {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := 0; i < len(as) && i < len(bs); i++ {
		switch {
		case as[i] == ">" || bs[i] == ">":
			return true
		case as[i] != bs[i] && as[i] != "*" && bs[i] != "*":
			return false
		}
	}
	return len(as) == len(bs)
}

// under says whether a filter matches a subject that begins with the prefix.
func under(filter, prefix string) bool {
	return overlap(filter, prefix) || overlap(filter, prefix+".>")
}
