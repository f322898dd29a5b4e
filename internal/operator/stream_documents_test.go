package operator_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	client "millrace/client/quality"
	"millrace/internal/device"
	"millrace/internal/device/cuda"
	"millrace/internal/device/host"
	"millrace/internal/operator"
	"millrace/internal/streams"
)

// curatorSpecs are the operators that tools/curator/check compares with Curator's definitions. The check expects that the first spec of
// quality has all counters.
var curatorSpecs = []string{"minhash?hashes=260", "minhash?hashes=128", "quality?ngrams=true", "quality"}

// documentRequest selects the documents to compute, and the pipes to which they are written with their results.
type documentRequest struct {
	Seed      uint64
	First     int // number of the first document
	Documents int // number of documents
	Batch     int // documents per block
	Seconds   int // no block begins after this number of seconds, so there may be fewer documents; 0: no limit

	Device string // "cuda" or "host"
	Every  int    // 1 in this number of blocks is also computed in small batches, and with each variant of the host kernels; 0: none
	Pipes  []int  // file descriptors; a goroutine per pipe writes blocks to it
}

// blockHead is the JSON line at the start of a block. The offsets of the documents follow, as Rows+1 little-endian uint32, and then the
// text of Bytes bytes. For each result, Rows records of Record bytes and Rows refusal bytes follow. A refusal byte is 1 if the operator
// refused the document.
type blockHead struct {
	First, Rows, Bytes int
	Counters           []string // names of the numbers in a record of quality; without ngrams=true, a record has only the first of them
	Results            []blockResult
}

type blockResult struct {
	Device, Operator string
	Record           int
	records, refused []byte
}

// documentDevice computes documents on a device, as a worker does.
type documentDevice struct {
	name  string
	ops   []operator.Operator
	pipe  *streams.Pipeline
	most  int          // documents per batch
	close func() error // closes the pipeline and the device
}

const maxDocuments = 8192 // per batch, as in a worker

// openDocumentDevice creates a pipeline on dev and owns both.
func openDocumentDevice(name string, dev device.Device, specs []string) (*documentDevice, error) {
	d := &documentDevice{name: name, most: maxDocuments, close: dev.Close}
	for _, spec := range specs {
		op, err := operator.Parse(spec)
		if err != nil {
			return nil, errors.Join(err, d.close())
		}
		d.ops = append(d.ops, op)
	}
	var err error
	d.pipe, err = streams.New(dev, streams.Options{
		Lanes: 4, BatchBytes: 4 << 20, BatchPayloads: maxDocuments, ScratchLimit: 1 << 30, Operators: d.ops,
	})
	if err != nil {
		return nil, errors.Join(err, d.close())
	}
	d.close = func() error { return errors.Join(d.pipe.Close(), dev.Close()) }
	return d, nil
}

// compute returns the results of the documents. Calls may overlap.
func (d *documentDevice) compute(text []byte, offsets []uint32) ([]blockResult, error) {
	results := make([]blockResult, len(d.ops))
	for i, op := range d.ops {
		results[i] = blockResult{Device: d.name, Operator: op.String(), Record: op.Stride()}
	}
	for first := 0; first < len(offsets)-1; {
		b, err := d.pipe.Acquire(context.Background())
		if err != nil {
			return nil, err
		}
		next := first
		for next < min(first+d.most, len(offsets)-1) && b.Append(text[offsets[next]:offsets[next+1]]) {
			next++
		}
		done, err := d.run(b)
		if err != nil {
			return nil, fmt.Errorf("documents from %d on: %w", first, err)
		}
		for i, op := range d.ops {
			results[i].add(op, done.Results(i), done.Rows())
		}
		done.Release()
		first = next
	}
	return results, nil
}

// run submits a batch and returns it when it is complete. If a goroutine receives the batch of another goroutine, it passes the batch on.
func (d *documentDevice) run(b *streams.Batch) (*streams.Batch, error) {
	mine := make(chan *streams.Batch, 1)
	b.Owner = mine
	if err := b.Submit(streams.ClosedByCount); err != nil {
		b.Release()
		return nil, err
	}
	other := <-d.pipe.Completed()
	other.Owner.(chan *streams.Batch) <- other
	b = <-mine
	return b, b.Err()
}

// add appends the results of a batch.
func (r *blockResult) add(op operator.Operator, results []byte, rows int) {
	r.records = append(r.records, results[:rows*r.Record]...)
	for row := range rows {
		refused := byte(0)
		if refuser, ok := op.(operator.Refuser); ok && refuser.Refusal(results, rows, row) != "" {
			refused = 1
		}
		r.refused = append(r.refused, refused)
	}
}

// openDocumentDevices opens the device for every document, and the devices for some documents. The devices for some documents are
// the same device with small batches, and a device for each variant of the host's minhash.
func openDocumentDevices(r documentRequest) (every *documentDevice, some []*documentDevice, err error) {
	add := func(suffix string, specs []string, dev device.Device, failed error) *documentDevice {
		if failed != nil {
			err = errors.Join(err, failed)
			return nil
		}
		d, failed := openDocumentDevice(dev.Info().Name+suffix, dev, specs)
		err = errors.Join(err, failed)
		return d
	}
	if r.Device == "host" {
		dev, failed := host.Open(host.Options{Kernels: operator.HostKernels()})
		every = add("", curatorSpecs, dev, failed)
	} else {
		dev, failed := cuda.Open(cuda.Options{Library: os.Getenv("MILLRACE_KERNELS")})
		every = add("", curatorSpecs, dev, failed)
	}
	if r.Every == 0 || err != nil {
		return every, nil, err
	}
	small := *every
	small.name, small.most, small.close = every.name+", small batches", 50, func() error { return nil }
	some = append(some, &small)
	for _, variant := range operator.MinhashVariants() {
		specs := curatorSpecs
		if variant != "Go" {
			specs = specs[:2] // quality has one implementation, in Go
		}
		dev, failed := host.Open(host.Options{Kernels: operator.HostKernelsWith(variant)})
		some = append(some, add(", "+variant, specs, dev, failed))
	}
	return every, some, err
}

// writeBlock writes documents and their results. Flush returns the errors of earlier writes.
func writeBlock(w *bufio.Writer, first int, text []byte, offsets []uint32, results []blockResult) error {
	head := blockHead{First: first, Rows: len(offsets) - 1, Bytes: len(text), Results: results}
	for c := range client.NumCounters {
		head.Counters = append(head.Counters, c.String())
	}
	if err := json.NewEncoder(w).Encode(head); err != nil {
		return err
	}
	if err := binary.Write(w, binary.LittleEndian, offsets); err != nil {
		return err
	}
	_, _ = w.Write(text)
	for _, r := range results {
		_, _ = w.Write(r.records)
		_, _ = w.Write(r.refused)
	}
	return w.Flush()
}

// documentStream writes blocks of documents and their results.
type documentStream struct {
	documentRequest
	source documents
	every  *documentDevice
	some   []*documentDevice
	next   atomic.Int64 // block
	ends   time.Time    // when no further block begins; zero: never
}

// streamDocuments writes each block to one of the writers.
func streamDocuments(r documentRequest, writers []io.Writer) error {
	s := &documentStream{documentRequest: r, source: newDocuments(r.Seed)}
	var err error
	if s.every, s.some, err = openDocumentDevices(r); err != nil {
		return err
	}
	if r.Seconds > 0 {
		s.ends = time.Now().Add(time.Duration(r.Seconds) * time.Second)
	}
	var group sync.WaitGroup
	failed := make([]error, len(writers))
	for i, w := range writers {
		group.Go(func() { failed[i] = s.writeTo(bufio.NewWriterSize(w, 1<<20)) })
	}
	group.Wait()
	for _, d := range append(s.some, s.every) {
		failed = append(failed, d.close())
	}
	return errors.Join(failed...)
}

// writeTo writes blocks until no block is left or the time is over. The written blocks are always the first blocks.
func (s *documentStream) writeTo(w *bufio.Writer) error {
	for s.ends.IsZero() || time.Now().Before(s.ends) {
		block := int(s.next.Add(1)) - 1
		first, end := block*s.Batch, min((block+1)*s.Batch, s.Documents)
		if first >= end {
			return nil
		}
		text, offsets := []byte(nil), []uint32{0}
		for i := first; i < end; i++ {
			text = s.source.append(text, s.First+i)
			if len(text) > math.MaxUint32 {
				return errors.New("a block is larger than 4 GiB: use smaller ones")
			}
			offsets = append(offsets, uint32(len(text)))
		}
		devices := []*documentDevice{s.every}
		if s.Every != 0 && block%s.Every == 0 {
			devices = append(devices, s.some...)
		}
		var results []blockResult
		for _, d := range devices {
			more, err := d.compute(text, offsets)
			if err != nil {
				return err
			}
			results = append(results, more...)
		}
		if err := writeBlock(w, s.First+first, text, offsets, results); err != nil {
			return err
		}
	}
	return nil
}

// TestStreamDocuments writes documents with their results for tools/curator/check, which compares the results with its own.
func TestStreamDocuments(t *testing.T) {
	asked := os.Getenv("MILLRACE_CURATOR_CHECK")
	if asked == "" {
		t.Skip("SKIPPED: tools/curator/check RUNS IT")
	}
	var request documentRequest
	if err := json.Unmarshal([]byte(asked), &request); err != nil {
		t.Fatal(err)
	}
	var writers []io.Writer
	for _, fd := range request.Pipes {
		writers = append(writers, os.NewFile(uintptr(fd), "pipe"))
	}
	if err := streamDocuments(request, writers); err != nil {
		t.Fatal(err)
	}
}

// TestCuratorCheck runs tools/curator/check with few documents. It must find a changed value.
func TestCuratorCheck(t *testing.T) {
	if out, err := exec.Command("python3", "-c", "import numpy").CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: no python3 with numpy, so tools/curator/check isn't tested: %v: %s", err, out)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	check := func(more ...string) (string, error) {
		args := append([]string{"../../tools/curator/check", "--program", program, "--first", "2000", "--documents", "600", "--block", "100",
			"--every", "2", "--workers", "2"}, more...)
		out, err := exec.Command("python3", args...).CombinedOutput()
		return string(out), err
	}
	if out, err := check(); err != nil || !strings.Contains(out, "no difference in documents 2,000 to 2,599") {
		t.Errorf("the check fails: %v\n%s", err, out)
	}
	out, err := check("--alter", "2007")
	if err == nil {
		t.Errorf("the check doesn't find a changed value:\n%s", out)
	}
	for i, value := range []string{"signature[259]", "signature[127]", "duplicate_10gram_chars", "gr_repeated_line_chars"} {
		op, err := operator.Parse(curatorSpecs[i])
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range []string{"DIFFERENT: document 2007 of seed 1, " + op.String() + " on host (", ": " + value + " is "} {
			if !strings.Contains(out, line) {
				t.Errorf("the check doesn't report %q:\n%s", line, out)
			}
		}
	}
}

// TestStreamedDocumentsAreCorrect reads blocks back, and compares the results with the references.
func TestStreamedDocumentsAreCorrect(t *testing.T) {
	const documents = 300
	var stream bytes.Buffer
	if err := streamDocuments(documentRequest{Seed: 1, First: 1000, Documents: documents, Batch: 128, Device: "host", Every: 1}, []io.Writer{&stream}); err != nil {
		t.Fatal(err)
	}
	var (
		source = newDocuments(1)
		in     = bufio.NewReader(&stream)
		read   = func(n int) []byte {
			b := make([]byte, n)
			if _, err := io.ReadFull(in, b); err != nil {
				t.Fatal(err)
			}
			return b
		}
	)
	for next := 1000; next < 1000+documents; {
		var head blockHead
		line, err := in.ReadBytes('\n')
		if err := errors.Join(err, json.Unmarshal(line, &head)); err != nil {
			t.Fatal(err)
		}
		if head.First != next || len(head.Results) != 3*len(curatorSpecs)+2*(len(operator.MinhashVariants())-1) {
			t.Fatalf("a block starts with document %d and has %d results, want document %d", head.First, len(head.Results), next)
		}
		offsets, text := read(4*(head.Rows+1)), read(head.Bytes)
		row := func(i int) []byte {
			return text[binary.LittleEndian.Uint32(offsets[4*i:]):binary.LittleEndian.Uint32(offsets[4*i+4:])]
		}
		for i := range head.Rows {
			if !bytes.Equal(row(i), source.append(nil, next+i)) {
				t.Fatalf("document %d is %q", next+i, row(i))
			}
		}
		for _, r := range head.Results {
			op, err := operator.Parse(r.Operator)
			if err != nil {
				t.Fatal(err)
			}
			records, refused := read(head.Rows*r.Record), read(head.Rows)
			for i := range head.Rows {
				refuser, ok := op.(operator.ReferenceRefuser)
				wantRefused := ok && refuser.ReferenceRefusal(row(i)) != ""
				if !bytes.Equal(records[i*r.Record:][:r.Record], op.AppendReference(nil, row(i))) || (refused[i] == 1) != wantRefused {
					t.Errorf("%s, %s: document %d differs from the reference: %q", r.Device, r.Operator, next+i, row(i))
				}
			}
		}
		next += head.Rows
	}
	if in.Buffered() > 0 {
		t.Errorf("%d bytes are left", in.Buffered())
	}
}
