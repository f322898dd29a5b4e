package main

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// TestCredentialsAreCheckedBeforeConnecting checks that `worker check` and `worker run` report wrong credentials with
// advice.
func TestCredentialsAreCheckedBeforeConnecting(t *testing.T) {
	t.Parallel()
	expired, _, _ := userCredentials(t, time.Now().Add(-time.Hour))
	public, seed := newUser(t)
	_, strange := newUser(t)
	s := guarded(t, server.Options{Nkeys: []*server.NkeyUser{{Nkey: public}}})
	url := "MILLRACE_NATS_URL=nats://" + s.Addr().String()
	missing := filepath.Join(t.TempDir(), "missing")
	for _, c := range []struct {
		name, variable, path string
		code                 int
		want                 []string
	}{
		{"expired", "MILLRACE_NATS_CREDS", secretFile(t, expired), exitFailed, []string{"expired at", "nsc generate creds"}},
		{"unknown", "MILLRACE_NATS_NKEY", secretFile(t, strange), exitFailed, []string{"Authorization Violation", "add its public key"}},
		{"no seed", "MILLRACE_NATS_NKEY", secretFile(t, "nothing"), exitFailed, []string{"does not hold the NKey seed of a user", "begins with SU"}},
		{"no PEM", "MILLRACE_NATS_TLS_CA", secretFile(t, "nothing"), exitFailed, []string{"holds no certificate", "BEGIN CERTIFICATE"}},
		{"missing", "MILLRACE_NATS_CREDS", missing, exitUsage, []string{missing, "cannot be read: no such file or directory"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			want := append([]string{c.variable, c.path}, c.want...)
			call(t, []string{url, c.variable + "=" + c.path}).want(t, c.code, want...)
			call(t, []string{url, c.variable + "=" + c.path}, "check").want(t, exitFailed, append(want, "error")...)
		})
	}
	call(t, []string{url, "MILLRACE_NATS_NKEY=" + secretFile(t, seed), "MILLRACE_PROVISION=true"}, "check").
		want(t, exitDone, "ok       MILLRACE_NATS_NKEY", "is the seed of user "+public)
}
