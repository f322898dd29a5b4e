package natsconn

import (
	"bytes"
	"fmt"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"
)

const (
	newCreds = "have new credentials issued (nsc generate creds) and write them to the file; they take effect with the next connection"
	newSeed  = "name a file with the seed of a user, which begins with SU (nk -gen user)"
)

// inspectCreds checks a credentials file: a user's JWT and the matching seed.
func inspectCreds(path string, now time.Time) *fileFinding {
	data, bad := read(credsVariable, path)
	if bad != nil {
		return bad
	}
	defer clear(data)
	f := &fileFinding{Variable: credsVariable, Path: path, Wrong: true, Advice: newCreds}
	token, err := nkeys.ParseDecoratedJWT(data)
	if err != nil || !bytes.Contains(data, []byte("eyJ")) {
		f.Found = "is not a credentials file: it has no JWT"
		return f
	}
	// The parsers' errors for a broken token or seed may quote it, so they aren't passed on.
	claims, err := jwt.DecodeUserClaims(token)
	if err != nil {
		f.Found = "has a JWT that cannot be read or does not belong to a user"
		return f
	}
	key, err := nkeys.ParseDecoratedUserNKey(data)
	if err != nil {
		f.Found = "has no seed of a user after the JWT"
		return f
	}
	defer key.Wipe()
	public, err := key.PublicKey()
	if err != nil || public != claims.Subject {
		f.Found = "has a JWT and a seed of different users"
		return f
	}
	f.Wrong, f.Advice = false, ""
	f.Found = fmt.Sprintf("is of user %s, %s", claims.Name, public)
	lifetime{orNever(claims.NotBefore, claims.IssuedAt), orNever(claims.Expires)}.judge(f, now, newCreds)
	return f
}

// orNever returns the first time that is set, in seconds; the zero time if none is.
func orNever(seconds ...int64) time.Time {
	for _, s := range seconds {
		if s != 0 {
			return time.Unix(s, 0)
		}
	}
	return time.Time{}
}

// inspectNKey checks a file with a seed.
func inspectNKey(path string) *fileFinding {
	key, public, bad := readSeed(path)
	if bad != nil {
		return bad
	}
	key.Wipe()
	return &fileFinding{Variable: nkeyVariable, Path: path, Found: "is the seed of user " + public}
}

// readSeed reads the key pair of a user from a file. The caller wipes it.
func readSeed(path string) (key nkeys.KeyPair, public string, bad *fileFinding) {
	data, bad := read(nkeyVariable, path)
	if bad != nil {
		return nil, "", bad
	}
	defer clear(data)
	f := &fileFinding{Variable: nkeyVariable, Path: path, Wrong: true, Advice: newSeed}
	key, err := nkeys.ParseDecoratedNKey(bytes.TrimSpace(data))
	if err != nil {
		f.Found = "does not hold an NKey seed"
		return nil, "", f
	}
	public, err = key.PublicKey()
	if err != nil || !nkeys.IsValidPublicUserKey(public) {
		key.Wipe()
		f.Found = "holds the seed of an account or an operator, not of a user"
		return nil, "", f
	}
	return key, public, nil
}
