package config

import (
	"regexp"
	"strings"
)

// hidden stands where a secret was.
const hidden = "****"

// mask hides what must not be printed of a variable's value: the user, password or token and the query in a
// server's address, and keys pasted where a file's path belongs. Files are never read for printing.
func mask(variable, value string) string {
	switch variable {
	case Prefix + "_NATS_URL":
		return maskAddresses(value)
	case Prefix + "_NATS_CREDS", Prefix + "_NATS_NKEY", Prefix + "_NATS_TLS_CA", Prefix + "_NATS_TLS_CERT", Prefix + "_NATS_TLS_KEY":
		if pasted(value) {
			return hidden
		}
	}
	return value
}

var schemeStart = regexp.MustCompile(`[A-Za-z]+://`)

// maskAddresses works on the text, since addresses too broken to parse may still hold a password. A
// password may itself hold a comma, "@" or "/", so from each scheme all before the last "@" is hidden.
func maskAddresses(text string) string {
	var b strings.Builder
	for text != "" {
		if at := schemeStart.FindStringIndex(text); at != nil && at[0] == 0 {
			b.WriteString(text[:at[1]])
			text = text[at[1]:]
		}
		end := len(text)
		if at := schemeStart.FindStringIndex(text); at != nil {
			end = at[0]
		}
		b.WriteString(maskAddress(text[:end]))
		text = text[end:]
	}
	return b.String()
}

// maskAddress hides what stands before the last "@" and after the first "?" or "#".
func maskAddress(rest string) string {
	user := ""
	if i := strings.LastIndex(rest, "@"); i >= 0 {
		user, rest = hidden+"@", rest[i+1:]
	}
	if i := strings.IndexAny(rest, "?#"); i >= 0 {
		rest = rest[:i+1] + hidden
	}
	return user + rest
}

var nkeySeed = regexp.MustCompile(`S[A-Z2-7]{40,}`)

// pasted says whether a value is a key itself and not the path of a file that holds one: PEM and
// credentials files have marked lines, an NKey seed is base 32, a JWT begins with "eyJ".
func pasted(value string) bool {
	return strings.Contains(value, "-----BEGIN") || strings.Contains(value, "\n") ||
		strings.HasPrefix(value, "eyJ") || nkeySeed.MatchString(value)
}
