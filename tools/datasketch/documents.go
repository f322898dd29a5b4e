// Command documents writes generated documents for measure. 30 % of the documents are edited copies of an earlier one. A little-endian
// uint32 with the length precedes each document:
//
//	go run ./tools/datasketch -size 512 -count 100000 > documents
package main

import (
	"bufio"
	"encoding/binary"
	"flag"
	"fmt"
	"os"

	"millrace/internal/corpus"
)

const seed = 3

func main() {
	size := flag.Int("size", 512, "bytes of a document that is no copy")
	count := flag.Int("count", 10_000, "number of documents")
	flag.Parse()
	out := bufio.NewWriter(os.Stdout)
	if err := write(out, *size, *count); err != nil {
		fmt.Fprintln(os.Stderr, "documents:", err)
		os.Exit(1)
	}
}

func write(out *bufio.Writer, size, count int) error {
	documents := corpus.NearDuplicates{Seed: seed, Share: 0.3, Text: corpus.TextsOf(seed, size)}
	var document []byte
	for i := range count {
		document = documents.Append(document[:0], i)
		if err := binary.Write(out, binary.LittleEndian, uint32(len(document))); err != nil {
			return err
		}
		if _, err := out.Write(document); err != nil {
			return err
		}
	}
	return out.Flush()
}
