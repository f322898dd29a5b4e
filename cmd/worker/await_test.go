package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/config"
)

// lines is a slog.Handler that records the messages.
type lines struct {
	slog.Handler
	mu   sync.Mutex
	list []string
}

func (l *lines) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := r.Message
	r.Attrs(func(a slog.Attr) bool { text += " " + a.String(); return true })
	l.list = append(l.list, text)
	return nil
}

func (l *lines) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := l.list
	l.list = nil
	return list
}

// TestAWaitLogsALineAMinute checks the log and the status reports of a wait of 3.5 minutes, with attempts that last one
// second.
func TestAWaitLogsALineAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, reports := &lines{Handler: slog.NewTextHandler(nil, nil)}, map[string]int{}
		began := time.Now()
		err := wait(t.Context(), slog.New(log), func(why error) { reports[fmt.Sprint(why)]++ }, func(context.Context) error {
			time.Sleep(time.Second) //nolint:forbidigo // on the virtual clock
			if time.Since(began) < 210*time.Second {
				return notYet{errors.New("nobody there")}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		list := log.take()
		if len(list) != 5 || !strings.Contains(list[0], "waiting for NATS") || !strings.Contains(list[0], "for=0s error=nobody there") ||
			!strings.Contains(list[3], "for=3m0s error=nobody there") || !strings.Contains(list[4], "NATS can be used now") {
			t.Errorf("the log is %q, want a line at once, one after each minute, and one at the end", list)
		}
		if reports["nobody there"] < 60 || reports["<nil>"] != 1 {
			t.Errorf("the reports are %v, want one for each attempt, and one for the end", reports)
		}
	})
}

// TestAWaitEnds checks that a permanent error or the end of the context ends a wait.
func TestAWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &lines{Handler: slog.NewTextHandler(nil, nil)}
		lasting := errors.New("wrong password")
		if err := wait(t.Context(), slog.New(log), func(error) {}, func(context.Context) error { return lasting }); err != lasting || len(log.take()) != 0 { //nolint:errorlint // the same error
			t.Errorf("an error that lasts: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		began := time.Now()
		time.AfterFunc(time.Hour, cancel)
		err := wait(ctx, slog.New(log), func(error) {}, func(context.Context) error { return notYet{errors.New("nobody there")} })
		if !errors.Is(err, context.Canceled) || time.Since(began) != time.Hour {
			t.Errorf("the end of the context: %v after %v, want it at once", err, time.Since(began))
		}
		if n := len(log.take()); n < 60 || n > 61 {
			t.Errorf("%d lines in an hour, want one per minute", n)
		}
	})
}

// TestSIGTERMInterruptsADial uses a server that accepts a connection and sends nothing, which blocks a dial for seconds. The caller of the
// dial must return at once.
func TestSIGTERMInterruptsADial(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }() // the test is over, so an error is irrelevant
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		if c, err := l.Accept(); err == nil {
			defer func() { _ = c.Close() }()
			cancel()
			<-t.Context().Done()
		}
	}()
	cfg := &config.Config{}
	a := newApp(cfg, slog.New(slog.DiscardHandler))
	a.url = "nats://" + l.Addr().String()
	if nc, err := a.dial(ctx); nc != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("the dial returned %v, %v, want the end of the context", nc, err)
	}
}

// waits checks the endpoints of a worker that waits for NATS. The worker is alive but not ready, and /readyz contains
// the texts.
func waits(t *testing.T, p *process, why ...string) {
	t.Helper()
	page := address(t, p, "serving metrics and health")
	for path, code := range map[string]int{"healthz": http.StatusOK, "readyz": http.StatusServiceUnavailable, "metrics": http.StatusOK} {
		resp, err := http.Get(page + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close() // only the status code matters
		if resp.StatusCode != code {
			t.Errorf("/%s answers %d while the worker waits, want %d", path, resp.StatusCode, code)
		}
	}
	awaitBody(t, page+"metrics", "millrace_nats_connected 0")
	for _, text := range append(why, "starting: waiting for NATS: ") {
		awaitBody(t, page+"readyz", text)
	}
}

// works checks that a worker that has waited processes a payload and stops.
func works(t *testing.T, p *process, url string) {
	t.Helper()
	p.await(`"msg":"working"`)
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := js.Publish(t.Context(), "ingest.test", []byte("payload")); err != nil {
		t.Fatal(err)
	}
	page := address(t, p, "serving metrics and health")
	awaitBody(t, page+"metrics", `millrace_messages_total{outcome="published"} 1`)
	awaitBody(t, page+"metrics", "millrace_nats_connected 1")
	awaitBody(t, page+"readyz", "ok")
	if code := p.terminate(); code != exitDone {
		t.Errorf("exit status %d after SIGTERM, want 0", code)
	}
}

// waiting returns the environment of a worker that waits for the server at addr.
func waiting(addr string, more ...string) []string {
	return append([]string{"MILLRACE_NATS_URL=nats://" + addr, "MILLRACE_PROVISION=true", "MILLRACE_OPERATORS=crc32c",
		"MILLRACE_HTTP_ADDR=127.0.0.1:0", "MILLRACE_LOG_FORMAT=json"}, more...)
}

// TestTheWorkerWaitsForItsServer starts a worker before its server. The server starts first without JetStream, and
// later with it.
func TestTheWorkerWaitsForItsServer(t *testing.T) {
	t.Parallel()
	addr := freeAddr()
	port, err := strconv.Atoi(addr[strings.LastIndexByte(addr, ':')+1:])
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, waiting(addr))
	p.await(`"msg":"waiting for NATS`)
	waits(t, p, "cannot connect to NATS at nats://"+addr, "is a server running there")
	without := serveOptions(t, server.Options{Port: port})
	waits(t, p, "JetStream does not answer", "enable JetStream")
	without.Shutdown()
	without.WaitForShutdown()
	serveOptions(t, server.Options{Port: port, JetStream: true, StoreDir: t.TempDir()})
	p.await(`"msg":"NATS can be used now"`)
	works(t, p, "nats://"+addr)
}

// TestTheWorkerWaitsForTheLeaderOfItsCluster starts a worker while only one of three servers runs. JetStream has no
// leader then.
func TestTheWorkerWaitsForTheLeaderOfItsCluster(t *testing.T) {
	t.Parallel()
	var routes []*url.URL
	var options []server.Options
	for i := range 3 {
		addr := freeAddr()
		port, err := strconv.Atoi(addr[strings.LastIndexByte(addr, ':')+1:])
		if err != nil {
			t.Fatal(err)
		}
		routes = append(routes, &url.URL{Scheme: "nats-route", Host: addr})
		options = append(options, server.Options{ServerName: fmt.Sprint("server-", i), Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(),
			Cluster: server.ClusterOpts{Name: "cluster", Host: loopback(), Port: port}})
	}
	for i := range options {
		options[i].Routes = routes
	}
	first := serveOptions(t, options[0])
	p := start(t, waiting(first.Addr().String()))
	p.await(`"msg":"waiting for NATS`)
	waits(t, p, "JetStream does not answer")
	for _, o := range options[1:] {
		serveOptions(t, o)
	}
	works(t, p, first.ClientURL())
}

// serveOptions starts a server with the options o and without a log. The server stops at the end of the test.
func serveOptions(t *testing.T, o server.Options) *server.Server {
	t.Helper()
	o.Host, o.NoLog, o.NoSigs = loopback(), true, true
	s, err := server.NewServer(&o)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(patience) {
		t.Fatal("the server did not start")
	}
	return s
}

// TestAWaitingWorkerEndsOnSIGTERM checks that a waiting worker exits with status 0.
func TestAWaitingWorkerEndsOnSIGTERM(t *testing.T) {
	t.Parallel()
	p := start(t, waiting(freeAddr()))
	p.await(`"msg":"waiting for NATS`)
	if code := p.terminate(); code != exitDone {
		t.Errorf("exit status %d after SIGTERM, want 0", code)
	}
	p.await("stopped before the work began")
}

// TestTheWorkerDoesNotWaitForPermissions checks that the worker ends if the user lacks a permission. The server doesn't reply to a request
// without permission, so waiting would not help.
func TestTheWorkerDoesNotWaitForPermissions(t *testing.T) {
	t.Parallel()
	s, as := documentedServer(t)
	_, admin := as("admin")
	if _, err := admin.CreateStream(t.Context(), jetstream.StreamConfig{Name: "INGEST", Subjects: []string{"ingest.>"}}); err != nil {
		t.Fatal(err)
	}
	call(t, waiting("worker:worker-password@"+s.Addr().String())).want(t, exitFailed, "RESULTS")
}
