package ingest

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/device/host"
	"millrace/internal/ingest/embedded"
	"millrace/internal/operator"
	"millrace/internal/operator/payloads"
	"millrace/internal/streams"
)

// BenchmarkWorker measures the whole way from stream to stream on the host device, beside a worker that does
// nothing but pull, publish and acknowledge on the same subjects: the share of NATS itself. Server, producer
// and worker share the machine; storage is files. Each iteration moves 5000 payloads
// on a server of its own.
//
//	go test ./internal/ingest -run xxx -bench Worker -benchtime 4x
func BenchmarkWorker(b *testing.B) {
	for _, size := range []struct {
		name  string
		bytes int
	}{{"256B", 256}, {"2KiB", 2 << 10}, {"64KiB", 64 << 10}} {
		for _, ops := range []string{"none", "crc32c", "crc32c,minhash"} {
			b.Run(size.name+"/"+ops, func(b *testing.B) { benchWorker(b, size.bytes, ops) })
		}
	}
}

const benchPayloads = 5000

func benchWorker(b *testing.B, size int, ops string) {
	n := benchPayloads
	if ops == "crc32c,minhash" && size > 2<<10 {
		n /= 10 // a CPU computes megabytes of signatures a second
	}
	b.SetBytes(int64(n * size))
	var worked time.Duration
	for b.Loop() {
		b.StopTimer()
		worked += benchRound(b, n, size, ops)
		b.StartTimer()
	}
	b.ReportMetric(float64(n)*float64(b.N)/worked.Seconds(), "payloads/s")
}

// benchRound stores n payloads on a server of its own and returns how long the worker takes to move them. The
// benchmark's timer runs meanwhile and is stopped otherwise.
func benchRound(b *testing.B, n, size int, ops string) time.Duration {
	server, err := embedded.Start(embedded.Options{Addr: "127.0.0.1:0", Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer server.Close()
	nc, err := nats.Connect(server.URL())
	if err != nil {
		b.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		b.Fatal(err)
	}
	opts := benchOptions(b, ops)
	if err := Provision(context.Background(), js, opts); err != nil {
		b.Fatal(err)
	}
	benchPublish(b, js, n, size)
	if ops == "none" {
		b.StartTimer()
		defer b.StopTimer()
		start := time.Now()
		nullWorker(b, nc, opts, n)
		return time.Since(start)
	}
	return realWorker(b, server.URL(), opts, n)
}

func benchOptions(b *testing.B, list string) Options {
	if list == "none" {
		list = "crc32c"
	}
	ops, err := operator.ParseList(list)
	if err != nil {
		b.Fatal(err)
	}
	return Options{
		Stream: "INGEST", Subjects: []string{"ingest.>"}, Consumer: "millrace",
		ResultStream: "RESULTS", ResultPrefix: "results", DeadLetterPrefix: "deadletter",
		Operators: ops, Format: operator.JSON, Linger: 2 * time.Millisecond, MaxDeliver: 5,
		DrainTimeout: 30 * time.Second, AckWait: time.Minute, MaxAckPending: 1 << 20,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Observer: newTally(),
	}
}

func benchPublish(b *testing.B, js jetstream.JetStream, n, size int) {
	body := payloads.Text(uint64(time.Now().UnixNano()), size)
	for i := range n {
		body[i%size]++
		if _, err := js.PublishAsync("ingest.bench", append([]byte(nil), body...)); err != nil {
			b.Fatal(err)
		}
	}
	<-js.PublishAsyncComplete()
}

// realWorker runs a worker on the host device until n payloads are settled, and returns how long that took.
func realWorker(b *testing.B, url string, opts Options, n int) time.Duration {
	d, err := host.Open(host.Options{Kernels: operator.HostKernels(), MemoryLimit: 1 << 30, HostMemoryLimit: 1 << 30})
	if err != nil {
		b.Fatal(err)
	}
	p, err := streams.New(d, streams.Config{Lanes: 4, BatchBytes: 4 << 20, BatchPayloads: 8192, ScratchLimit: 256 << 20, Operators: opts.Operators})
	if err != nil {
		b.Fatal(err)
	}
	counts := newTally()
	opts.Observer = counts
	nc, err := Connect(Connection{URL: url}, "bench", opts.Logger, counts)
	if err != nil {
		b.Fatal(err)
	}
	w, err := NewWorker(context.Background(), nc, []*streams.Pipeline{p}, opts)
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	b.StartTimer()
	start := time.Now()
	go func() { done <- w.Run(ctx) }()
	for counts.count(Published) < n {
		<-counts.changed
	}
	took := time.Since(start)
	b.StopTimer()
	stop()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
	nc.Close()
	if err := errors.Join(p.Close(), d.Close()); err != nil {
		b.Fatal(err)
	}
	return took
}

// nullWorker moves n payloads with no processing: the same subjects, headers, window and acknowledgements,
// and a result body of the length that crc32c's has.
func nullWorker(b *testing.B, nc *nats.Conn, opts Options, n int) {
	ctx := context.Background()
	const most = 4096 // publishes on their way
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(2*most))
	if err != nil {
		b.Fatal(err)
	}
	consumer, err := js.Consumer(ctx, opts.Stream, opts.Consumer)
	if err != nil {
		b.Fatal(err)
	}
	limit := newPullLimit(nc.MaxPayload(), jetstream.ConsumerConfig{})
	messages, err := consumer.Messages(jetstream.PullMaxMessagesWithBytesLimit(limit.messages, limit.bytes))
	if err != nil {
		b.Fatal(err)
	}
	defer messages.Stop()
	body := []byte(`{"bytes":00000,"crc32c":"00000000"}`)
	type moving struct {
		d   delivery
		ack jetstream.PubAckFuture
	}
	window := make(chan moving, most)
	done := make(chan error, 1)
	go func() {
		for range n {
			m := <-window
			select {
			case <-m.ack.Ok():
			case err := <-m.ack.Err():
				done <- err
				return
			}
			if err := m.d.msg.Ack(); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for range n {
		msg, err := messages.Next()
		if err != nil {
			b.Fatal(err)
		}
		d, err := newDelivery(msg, time.Now())
		if err != nil {
			b.Fatal(err)
		}
		ack, err := js.PublishMsgAsync(&nats.Msg{
			Subject: mapSubject(opts.ResultPrefix, msg.Subject()), Header: d.resultHeader("none"), Data: body,
		})
		if err != nil {
			b.Fatal(err)
		}
		window <- moving{d, ack}
	}
	if err := <-done; err != nil {
		b.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		b.Fatal(err)
	}
}
