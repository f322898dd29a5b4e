package config

import (
	"regexp"
	"strings"
)

// hidden is the text that replaces a secret.
const hidden = "****"

// mask hides the secrets in a variable's value. In a server's address, these are the user, the password, the token and
// the query. In the path of a file, the secret is a key that was pasted instead of a path. mask does not read files.
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

// maskAddresses masks a list of addresses. It does not parse them, because an invalid address may still contain a
// password. A password may contain a comma, "@" or "/". So maskAddresses hides everything between a scheme and the last
// "@" before the next scheme.
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

// maskAddress hides the text before the last "@" and after the first "?" or "#".
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

// pasted reports whether a value is a key instead of the path of a file. PEM and credentials files contain "-----BEGIN"
// or several lines. An NKey seed is base 32, and a JWT begins with "eyJ".
func pasted(value string) bool {
	return strings.Contains(value, "-----BEGIN") || strings.Contains(value, "\n") ||
		strings.HasPrefix(value, "eyJ") || nkeySeed.MatchString(value)
}
