package config

import (
	"strings"

	"millrace/internal/wildcard"
)

// wrongFilter returns what is wrong with a NATS subject filter, or "". A filter consists of tokens separated by dots. The token * matches
// any one token, and > as the last token matches one or more.
// Source: the NATS documentation, "Subject-Based Messaging".
func wrongFilter(filter string) string {
	if filter == "" {
		return "a subject in the list is empty"
	}
	if strings.ContainsFunc(filter, blank) {
		return "a subject contains a space or a control character"
	}
	tokens := strings.Split(filter, ".")
	for i, token := range tokens {
		switch {
		case token == "":
			return "a subject has an empty token"
		case token == ">" && i != len(tokens)-1:
			return "the wildcard > may be only the last token of a subject"
		case len(token) > 1 && strings.ContainsAny(token, "*>"):
			return "a wildcard must be a whole token"
		}
	}
	if reserved(tokens[0]) {
		return "the server reserves subjects that begin with $ or _INBOX"
	}
	return ""
}

// wrongPrefix returns what is wrong with the prefix of a subject, or "".
func wrongPrefix(prefix string) string {
	if prefix == "" {
		return "empty"
	}
	if strings.ContainsAny(prefix, "*>") {
		return "a prefix may contain no wildcards"
	}
	return wrongFilter(prefix)
}

// wrongDomain returns what is wrong with the name of a JetStream domain, or "". It is one token of a subject.
func wrongDomain(domain string) string {
	if strings.ContainsAny(domain, ".*>") || strings.ContainsFunc(domain, blank) {
		return "a domain may contain none of . * > and no spaces"
	}
	return ""
}

// wrongAPIPrefix returns what is wrong with the prefix of JetStream's subjects, or "". Unlike other prefixes, it may begin with $.
func wrongAPIPrefix(prefix string) string { return wrongPrefix(strings.TrimPrefix(prefix, "$")) }

// wrongName returns what is wrong with the name of a stream or a consumer, or "". The server refuses dots, wildcards and blanks. It also
// refuses slashes, because it names directories after streams.
func wrongName(name string) string {
	switch {
	case name == "":
		return "empty"
	case len(name) > 255:
		return "longer than 255 bytes"
	case strings.ContainsAny(name, `.*>/\`) || strings.ContainsFunc(name, blank):
		return `a name may contain none of . * > / \ and no spaces`
	}
	return ""
}

// blank reports whether r is a space or a control character.
func blank(r rune) bool { return r <= ' ' || r == 0x7f }

// reserved reports whether the server reserves subjects that begin with this token.
func reserved(token string) bool { return strings.HasPrefix(token, "$") || token == "_INBOX" }

// under reports whether a filter can match the prefix or a subject below it.
func under(filter, prefix string) bool {
	return wildcard.Overlap(filter, prefix) || wildcard.Overlap(filter, prefix+".>")
}
