package publisher

import (
	"context"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

func TestServerBatches(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{
		"2.14.0": true, "2.15.2": true, "2.14.0-RC.1": true, "3.0.0": true, "10.1": true,
		"2.13.9": false, "2.9.25": false, "1.14": false, "": false, "unknown": false,
	} {
		if got := ServerBatches(version); got != want {
			t.Errorf("ServerBatches(%q) = %v, want %v", version, got, want)
		}
	}
}

func TestWhatIsFoundOfAStream(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		config  jetstream.StreamConfig
		version string
		batches bool
		says    string
	}{
		{jetstream.StreamConfig{AllowBatchPublish: true}, "2.15.2", true, "one commit a batch"},
		{jetstream.StreamConfig{}, "2.15.2", false, "set allow_batched on the stream"},
		{jetstream.StreamConfig{AllowAtomicPublish: true}, "2.15.2", false, "not allow_atomic"},
		{jetstream.StreamConfig{}, "2.11.4", false, "upgrade it to 2.14"},
	} {
		got := judgeStream(c.config, c.version)
		if got.Batches != c.batches || !strings.Contains(got.String(), c.says) || (got.Advice == "") != c.batches {
			t.Errorf("of %+v on server %s: %+v, want one that says %q", c.config, c.version, got, c.says)
		}
	}
}

// following opens a publisher that queries the stream before every Publish.
func (r *rig) following() (f *Following, found Capability, changes chan Capability, c troubles) {
	r.Helper()
	changes, c = make(chan Capability, 100), newTroubles()
	f, found, err := Open(r.Ctx(), r.windowed(Timeout, r.Connect(r.URL)), Options{
		Stream: "RESULTS", Changed: func(c Capability) { changes <- c }, Trouble: c.note,
	})
	if err != nil {
		r.Fatal(err)
	}
	f.every, f.doubtful = 0, 0
	return f, found, changes, c
}

func (r *rig) wantChange(changes chan Capability, what string) {
	r.Helper()
	select {
	case c := <-changes:
		if !strings.Contains(c.String(), what) {
			r.Errorf("found %q, want %q", c, what)
		}
	default:
		r.Errorf("nothing new was found, want %q", what)
	}
}

func TestOpenFollowsTheStream(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	f, found, changes, _ := r.following()
	if !found.Batches || f.choose(r.Ctx()) != Publisher(f.batched) {
		t.Errorf("not in batches: %v", found)
	}
	r.wantStored(f.Publish(r.Ctx(), messages(0, 10, 20), nil), 10)

	r.config.AllowBatchPublish = false
	r.Create(r.config)
	r.wantStored(f.Publish(r.Ctx(), messages(10, 10, 20), nil), 10)
	r.wantChange(changes, "set allow_batched")
	if f.choose(r.Ctx()) != Publisher(f.singles) {
		t.Error("still in batches, though the stream does not allow them any more")
	}

	r.Delete(r.config.Name)
	r.config.AllowBatchPublish = true
	f.ask(r.Ctx())
	r.wantChange(changes, "there is no stream")
	r.Create(r.config)
	r.putAll(f, messages(0, 30, 20))
	r.wantChange(changes, "one commit a batch")
	r.wantOnce(30, true)
}

func TestABatchThatFailsCastsDoubt(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	f, _, _, c := r.following()
	f.every, f.doubtful = patience, patience // prevents queries during the test
	r.config.AllowBatchPublish = false
	r.Create(r.config)
	r.wantStored(f.Publish(r.Ctx(), messages(0, 10, 20), nil), 10)
	if len(c) != 1 {
		t.Errorf("%d complaints, want one", len(c))
	}
	r.wantStored(f.Publish(r.Ctx(), messages(10, 10, 20), nil), 10)
	if len(c) != 1 {
		t.Errorf("the next Put went in a batch too: %d complaints", len(c))
	}
	if f.choose(r.Ctx()) != Publisher(f.singles) || f.Singles() != f.singles {
		t.Error("in batches before the stream was asked again")
	}
	r.wantOnce(20, true)
}

func TestOpenWithoutTheStream(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.Delete(r.config.Name)
	f, found, changes, _ := r.following()
	if !found.Missing || found.Batches || f.choose(r.Ctx()) != Publisher(f.singles) {
		t.Errorf("with no stream: %+v", found)
	}
	r.Create(r.config)
	r.putAll(f, messages(0, 10, 20))
	r.wantChange(changes, "one commit a batch")
	r.wantOnce(10, true)
}

func TestOpenFailsWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	singles := r.windowed(Timeout, r.Connect(r.URL))
	over, cancel := context.WithCancel(context.Background())
	cancel()
	if _, _, err := Open(over, singles, Options{Stream: "RESULTS"}); err == nil {
		t.Error("a store was opened that asked nobody")
	}
	f, found, changes, _ := r.following()
	f.ask(over)
	if last := f.last.Load().capability; last != found || !f.doubt.Load() || len(changes) != 0 {
		t.Errorf("a question without an answer made %+v of %+v", last, found)
	}
}
