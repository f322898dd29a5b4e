package natsconn

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"
)

const (
	newCreds = "have new credentials issued (nsc generate creds) and write them to the file; they take effect with the next connection"
	newSeed  = "name a file with the seed of a user, which begins with SU (nk -gen user)"
)

// credsFile is the path of a credentials file: a user's JWT and the seed that goes with it.
type credsFile string

// inspect checks the file.
func (c credsFile) inspect(now time.Time) *fileFinding {
	data, bad := read(credsVariable, string(c))
	if bad != nil {
		return bad
	}
	defer clear(data)
	f := &fileFinding{Variable: credsVariable, Path: string(c), Wrong: true, Advice: newCreds}
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

// token reads the JWT, if it can be used now.
func (c credsFile) token() (string, error) {
	if bad := c.inspect(time.Now()); bad.Wrong {
		return "", bad
	}
	data, bad := read(credsVariable, string(c))
	if bad != nil {
		return "", bad
	}
	defer clear(data)
	return nkeys.ParseDecoratedJWT(data)
}

// sign signs with the seed.
func (c credsFile) sign(nonce []byte) ([]byte, error) {
	data, bad := read(credsVariable, string(c))
	if bad != nil {
		return nil, bad
	}
	defer clear(data)
	key, err := nkeys.ParseDecoratedUserNKey(data)
	if err != nil {
		return nil, errors.New("there is no longer a seed in " + string(c))
	}
	defer key.Wipe()
	return key.Sign(nonce)
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

// seedFile is the path of a file with the NKey seed of a user.
type seedFile string

// inspect checks the file.
func (s seedFile) inspect() *fileFinding {
	key, public, bad := s.read()
	if bad != nil {
		return bad
	}
	key.Wipe()
	return &fileFinding{Variable: nkeyVariable, Path: string(s), Found: "is the seed of user " + public}
}

// read reads the key pair of the user. The caller wipes it.
func (s seedFile) read() (key nkeys.KeyPair, public string, bad *fileFinding) {
	data, bad := read(nkeyVariable, string(s))
	if bad != nil {
		return nil, "", bad
	}
	defer clear(data)
	f := &fileFinding{Variable: nkeyVariable, Path: string(s), Wrong: true, Advice: newSeed}
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

// sign signs for the user that the worker started as: because the client can't become another user.
func (s seedFile) sign(public string, nonce []byte) ([]byte, error) {
	key, now, bad := s.read()
	if bad != nil {
		return nil, bad
	}
	defer key.Wipe()
	if now != public {
		return nil, &fileFinding{Variable: nkeyVariable, Path: string(s), Wrong: true,
			Found: "holds the seed of another user than at the worker's start", Advice: "restart the worker"}
	}
	return key.Sign(nonce)
}
