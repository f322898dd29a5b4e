package ingest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/ingest/embedded"
	"millrace/internal/ingest/inflight"
	"millrace/internal/ingest/trim"
	"millrace/internal/streams"
)

func otherDocument(i int) []byte { return append(document(i), "of the second stream"...) }

// wantBoth checks that every sequence has two results with different ids, one for each input that had this sequence.
func (r *rig) wantBoth(n int) {
	r.Helper()
	found := r.stored("results.>")
	for i := range n {
		seq := uint64(i + 1)
		if len(found[seq]) != 2 {
			r.Errorf("sequence %d has %d results, want one of each input that had it", seq, len(found[seq]))
			continue
		}
		for k, payload := range []func(int) []byte{document, otherDocument} {
			if err := r.opts.Format.Check(r.opts.Operators, payload(i), found[seq][k].Data()); err != nil {
				r.Errorf("result %d of sequence %d: %v", k+1, seq, err)
			}
		}
	}
}

// workOff runs a worker until the given number of deliveries are acknowledged in total, and ends it.
func (r *rig) workOff(acknowledged int) {
	r.Helper()
	run := r.run(hostDevice(r.TB), streams.Options{})
	r.tally.awaitAcknowledged(r.TB, acknowledged)
	run.finish()
}

// TestARecreatedStreamUnderAWorker recreates the input stream. Its first sequences already have results in the result
// stream.
func TestARecreatedStreamUnderAWorker(t *testing.T) {
	r := provisioned(t)
	const n = 50
	r.publish(n, document)
	run := r.run(hostDevice(t), streams.Options{})
	r.tally.awaitStored(t, n)
	r.Delete("INGEST")
	r.provision()
	r.publish(n, otherDocument)
	run.finishAfter(2 * n)
	r.wantBoth(n)
	if again := r.tally.count(inflight.Duplicate); again != 0 {
		t.Errorf("%d results were dropped as duplicates", again)
	}
}

// TestAnotherStreamBetweenWorkers recreates the input stream, or restores an older copy of it. A restored stream reuses
// sequences and keeps its creation time.
func TestAnotherStreamBetweenWorkers(t *testing.T) {
	t.Parallel()
	for _, restored := range []bool{false, true} {
		t.Run(fmt.Sprintf("restored %t", restored), func(t *testing.T) {
			eachMode(t, 1, func(t *testing.T, r *rig) {
				r.provision()
				const n = 50
				copied := filepath.Join(t.TempDir(), "copy")
				if restored {
					r.offline(func(stored string) error { return os.CopyFS(copied, os.DirFS(stored)) })
				}
				created := r.Stream("INGEST").CachedInfo().Created
				r.publish(n, document)
				r.workOff(n)
				if restored {
					r.offline(func(stored string) error {
						return errors.Join(os.RemoveAll(stored), os.CopyFS(stored, os.DirFS(copied)))
					})
				} else {
					r.Delete("INGEST")
					r.provision()
				}
				if now := r.Stream("INGEST").CachedInfo().Created; now.Equal(created) != restored {
					t.Fatalf("the stream was created at %v, and before at %v", now, created)
				}
				r.publish(n, otherDocument)
				r.workOff(2 * n)
				r.wantBoth(n)
			})
		})
	}
}

// offline stops the server, changes the files of the input stream, and starts it again.
func (r *rig) offline(change func(stored string) error) {
	r.Helper()
	r.Stop()
	r.Until("the client has noticed that the server is gone", func() bool { return !r.NC.IsConnected() })
	found, err := filepath.Glob(filepath.Join(r.Dir, "jetstream", "*", "streams", "INGEST"))
	if err != nil || len(found) != 1 {
		r.Fatalf("the files of the input stream are in %v (%v), want one folder", found, err)
	}
	check(r.TB, change(found[0]))
	r.Restart()
	r.Until("the client is connected again", r.NC.IsConnected)
}

// TestHeadersAreBounded shows that headers count towards a batch's limit of bytes. Empty payloads with large headers
// use no more memory than large payloads.
func TestHeadersAreBounded(t *testing.T) {
	eachMode(t, 1, func(t *testing.T, r *rig) {
		seen := r.observeRecords()
		r.provision()
		const n, batchBytes, headerBytes = 200, 256 << 10, 60 << 10 // a stream accepts at most 64 KiB of headers
		header := nats.Header{"Much": {strings.Repeat("x", headerBytes)}}
		r.Publish(0, n, func(int) *nats.Msg { return &nats.Msg{Subject: "ingest.web.0", Header: header} })
		r.run(hostDevice(t), streams.Options{BatchBytes: batchBytes}).finishAfter(n)
		payloads := 0
		for _, b := range seen.all() {
			payloads += b.Payloads
			if b.Payloads > batchBytes/headerBytes {
				t.Errorf("batch %d has %d payloads with headers of %d bytes, more than %d bytes together", b.Batch, b.Payloads, headerBytes, batchBytes)
			}
		}
		if payloads != n {
			t.Errorf("%d payloads in batches, want %d", payloads, n)
		}
	})
}

// TestDeleteMarkersAreNoInputs shows that the server's marker in place of an expired message has no result and is
// acknowledged.
func TestDeleteMarkersAreNoInputs(t *testing.T) {
	eachMode(t, 1, func(t *testing.T, r *rig) {
		r.opts.Kept.AskedEverything = true // a second worker must find the last marker
		r.provision()
		marker := nats.Header{"Nats-Marker-Reason": {"MaxAge"}}
		r.publishMsg(marker, nil)
		r.publishMsg(nil, nil)
		r.publishMsg(marker, []byte("a publisher's header"))
		r.publishMsg(marker, nil)
		r.process(hostDevice(t), streams.Options{})
		if got := r.stored("results.>"); len(got) != 2 || len(got[2]) != 1 || len(got[3]) != 1 {
			t.Errorf("results of the inputs %v, want 2 and 3", got)
		}
		if floor := r.consumerInfo().AckFloor.Stream; floor != 4 {
			t.Errorf("inputs up to %d are acknowledged, want all 4 with the markers", floor)
		}
		r.publishMsg(nil, []byte("more"))
		r.run(hostDevice(t), streams.Options{}).finishAfter(3)
		if r.Log.Has("more inputs are acknowledged than the last commit marker covers") {
			t.Error("the acknowledgement of a delete marker counts as that of an input without a result")
		}
	})
}

// TestExclusiveOnAStreamWithInterest shows that the stream removes every input once it is processed. The stream's
// retention can be changed while workers run.
func TestExclusiveOnAStreamWithInterest(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.opts.Exclusive, r.opts.Partitions = true, 3
	if _, err := r.JS.CreateStream(r.Ctx(), jetstream.StreamConfig{
		Name: "INGEST", Subjects: []string{"ingest.>"}, Retention: jetstream.InterestPolicy,
		SubjectTransform: &jetstream.SubjectTransformConfig{Source: ">", Destination: "{{partition(3)}}.>"},
	}); err != nil {
		t.Fatalf("nats-server %s: %v", embedded.Version, err)
	}
	r.provision()
	const n = 1000
	r.publish(n, document)
	run := r.run(hostDevice(t), streams.Options{})
	r.tally.awaitStored(t, n)
	r.awaitEmpty("INGEST")

	// Change the stream as the check advises, while the worker runs.
	r.Change("INGEST", func(c *jetstream.StreamConfig) {
		c.Retention, c.Discard, c.Metadata = jetstream.LimitsPolicy, jetstream.DiscardNew, trim.WithMark(*c, r.opts.Consumers())
	})
	r.publishFrom(n, 2*n, document)
	r.tally.awaitStored(t, 2*n)
	r.awaitEmpty("INGEST")
	run.finish()
	r.wantAll(2*n, document)
}

// TestProcessedInputsAreRemoved shows that the workers of two deployments on one stream remove an input once both
// have processed it.
func TestProcessedInputsAreRemoved(t *testing.T) {
	eachMode(t, 3, func(t *testing.T, r *rig) {
		r.opts.Kept.Trim = true
		r.provision()
		first := r.opts
		const n = 1000
		r.publish(n, document)
		run := r.run(hostDevice(t), streams.Options{})
		r.tally.awaitStored(t, n)
		r.awaitEmpty("INGEST")

		r.opts.Consumer, r.opts.ResultStream, r.opts.ResultPrefix, r.opts.DeadLetterPrefix = "other", "OTHER", "other", "otherdead"
		r.provision()
		r.publishFrom(n, 2*n, document)
		r.tally.awaitStored(t, 2*n)
		if held := r.Stream("INGEST").CachedInfo().State.Msgs; held != n {
			t.Errorf("the stream has %d inputs before the second deployment has processed them, want %d", held, n)
		}
		also := r.run(hostDevice(t), streams.Options{})
		r.awaitEmpty("INGEST")
		for _, run := range []*running{run, also} {
			run.finish()
		}
		if got := r.Stream("OTHER").CachedInfo().State; got.Msgs < n {
			t.Errorf("the second deployment has stored %d results and markers, want at least %d", got.Msgs, n)
		}
		r.opts = first
		r.wantAll(2*n, document)
	})
}

func (r *rig) awaitEmpty(stream string) {
	r.Helper()
	s := r.Stream(stream)
	r.Until("stream "+stream+" is empty", func() bool {
		info, err := s.Info(r.Ctx())
		return err == nil && info.State.Msgs == 0
	})
}
