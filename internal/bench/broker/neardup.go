package broker

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go"

	"millrace/client/arrow"
	"millrace/internal/bench"
	"millrace/internal/corpus"
	"millrace/internal/frame"
	"millrace/internal/ingest/lease"
	"millrace/internal/operator"
	"millrace/internal/streams"
	"millrace/internal/table"
	"millrace/internal/textframes"
)

// duplicatesForm is the form of frames with near-duplicates.
var duplicatesForm = form{framing: frame.NewlineDelimited, copies: true, format: operator.Arrow}

// duplicateBytes is the default size of a text among near-duplicates.
const duplicateBytes = 512

// runDuplicates measures neardup for one text size after another, and crc32c with the same messages. Both rows use commit markers.
func (b *Bench) runDuplicates(ctx context.Context, session *bench.Session, s *server) error {
	session.Note("Frames have about %d KiB of different texts, and %.0f %% of the texts are near-duplicates of an earlier one. Each of %d partitions has an index of twice %d records.",
		b.frameBytes>>10, 100*copiesShare, partitions, b.stateRecords)
	for _, size := range session.Sizes(duplicateBytes) {
		f := duplicatesForm.filled(size, b.frameBytes)
		var cases []*bench.Case
		for _, row := range []struct{ name, operators string }{{rowDuplicatesChecksums, "crc32c"}, {rowDuplicates, "neardup"}} {
			k := b.millraceKind(session, row.name, true, bench.Parse(row.operators))
			k.exactlyOnce = true
			cases = append(cases, s.rate(session, k, f))
		}
		cases[0].Reference = true
		if err := session.Measure(ctx, cases...); err != nil {
			return err
		}
		cases[1].Compare(figureOverChecksums, figureRecords, cases[0])
		session.Report(cases...)
	}
	return nil
}

// stateOptions returns the settings for the states of ops, with memory for all partitions. It returns nil if no operator is stateful.
func stateOptions(ops []operator.Operator, records int, pipe *streams.Pipeline) (*lease.StateOptions, error) {
	for _, op := range ops {
		if stateful, ok := op.(operator.Stateful); ok {
			memory, err := pipe.StateBytes(stateful, records)
			return &lease.StateOptions{Operator: stateful, Records: records, Bytes: memory.Device * partitions}, err
		}
	}
	return nil, nil
}

const (
	// copiesShare is the share of near-duplicates among the texts.
	copiesShare = 0.3

	// copiesLeast is the approximate minimum similarity between a near-duplicate and its source. neardup finds nearly all such pairs.
	copiesLeast = 0.9
)

// copiesOf returns the texts of message i, which are the next texts of its partition. A near-duplicate's source is in the same partition.
func (c *content) copiesOf(i int) [][]byte {
	seed := corpus.Seed(c.seed, i%partitions)
	all := corpus.NearDuplicates{Seed: seed, Share: copiesShare, Least: copiesLeast, Text: corpus.TextsOf(seed, c.size)}
	texts := make([][]byte, c.records)
	for r := range texts {
		texts[r] = all.Append(nil, i/partitions*c.records+r)
	}
	return texts
}

// verdictChecker implements checker for a stateful operator. It compares the first result of each partition with the reference. In all
// other results, it only checks that verdicts name earlier records of the partition.
func (c *content) verdictChecker(ops []operator.Operator) func(i int, h nats.Header, body []byte) error {
	return func(i int, h nats.Header, body []byte) error {
		if i >= partitions {
			return checkVerdicts(i, body)
		}
		verdicts := textframes.NewVerdicts(ops, c.records)
		want, err := c.decided(ops, i, func(inputs [][]byte) textframes.Decide {
			keys := verdicts.Keys(inputs)
			return func(t *table.Table, records []uint32) { verdicts.Put(t, records, uint64(i+1), keys) }
		})
		if err != nil {
			return err
		}
		return want.check(h, body)
	}
}

// checkVerdicts checks that the verdicts in the result of message i name earlier records of its partition.
func checkVerdicts(i int, body []byte) error {
	result, err := arrow.Decode(body)
	if err != nil {
		return err
	}
	for r := range result.Len() {
		v, ok := result.Neardup(r)
		if !ok {
			return fmt.Errorf("record %d has no verdict", r)
		}
		of := v.DuplicateOf
		if of == nil {
			continue
		}
		if of.Sequence == 0 || (of.Sequence-1)%partitions != uint64(i%partitions) || of.Sequence > uint64(i+1) ||
			of.Sequence == uint64(i+1) && of.Record >= uint64(r) {
			return fmt.Errorf("record %d is a near-duplicate of %+v, which isn't an earlier record of the partition", r, *of)
		}
	}
	return nil
}
