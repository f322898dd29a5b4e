//go:build !noembedded

package embedded_test

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/embedded"
	"millrace/internal/ingest/natstest"
)

func start(t *testing.T, addr, dir string) *embedded.Server {
	t.Helper()
	s := natstest.Must(embedded.Start(embedded.Options{Addr: addr, Dir: dir}))(t)
	t.Cleanup(s.Close)
	return s
}

func TestStreamsOutliveTheServer(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "by", "the", "server")
	first := start(t, "127.0.0.1:0", dir)
	r := natstest.At(t, first.URL())
	r.Create(jetstream.StreamConfig{Name: "KEPT", Subjects: []string{"kept.>"}})
	r.Put(&nats.Msg{Subject: "kept.a", Data: []byte("payload")})
	r.NC.Close()
	first.Close()
	first.Close() // has no effect

	second := start(t, strings.TrimPrefix(first.URL(), "nats://"), dir)
	if second.URL() != first.URL() {
		t.Errorf("the second server is at %s, want %s", second.URL(), first.URL())
	}
	if all := natstest.At(t, second.URL()).Stored("KEPT"); len(all) != 1 || string(all[0].Data) != "payload" {
		t.Errorf("after the restart %v is stored", all)
	}
}

func TestMaxPayloadIsWhatClientsAreTold(t *testing.T) {
	s := start(t, "127.0.0.1:0", t.TempDir())
	if got := natstest.At(t, s.URL()).NC.MaxPayload(); got != embedded.MaxPayload {
		t.Errorf("the server takes %d bytes, want %d", got, embedded.MaxPayload)
	}
}

func TestStartSaysWhatIsWrong(t *testing.T) {
	taken := natstest.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer func() { natstest.OK(t, taken.Close()) }()
	dir := t.TempDir() // has a file in place of the folder for the server's streams, which only the server itself detects
	file := filepath.Join(dir, "jetstream")
	natstest.OK(t, os.WriteFile(file, nil, 0o600))
	for _, c := range []struct {
		name, addr, dir string
		want            []string
	}{
		{"port taken", taken.Addr().String(), t.TempDir(), []string{taken.Addr().String(), "is one running already", "MILLRACE_NATS_URL"}},
		{"no folder can be there", "127.0.0.1:0", filepath.Join(file, "below"), []string{file, "MILLRACE_DATA_DIR"}},
		{"file in its place", "127.0.0.1:0", file, []string{file, "MILLRACE_DATA_DIR"}},
		{"file in it", "127.0.0.1:0", dir, []string{dir, "MILLRACE_DATA_DIR", "is the folder intact"}},
		{"no port", "127.0.0.1", t.TempDir(), []string{`address "127.0.0.1"`}},
		{"bad port", "127.0.0.1:99999", t.TempDir(), []string{`port "99999"`, "0 to 65535"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := embedded.Start(embedded.Options{Addr: c.addr, Dir: c.dir})
			if err == nil {
				s.Close()
				t.Fatal("the server started")
			}
			for _, part := range c.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not say %q", err, part)
				}
			}
		})
	}
}
