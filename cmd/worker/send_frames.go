package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"millrace/internal/compression"
	"millrace/internal/config"
	"millrace/internal/exchange"
	"millrace/internal/frame"
)

// frameFlags holds the flags of `worker send` about frames.
type frameFlags struct {
	framing, compress string
	records           int
}

// defaultRecords is the number of records of a frame.
const defaultRecords = 1000

// add adds the flags to a command.
func (f *frameFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.framing, "framing", "none", "send the lines of each FILE as the records of frames in this `framing`: newline_delimited, length_delimited, varint_length_delimited or arrow")
	c.Flags().IntVar(&f.records, "records", defaultRecords, "the most records of a frame; a frame that would be larger than max_payload before compression has fewer")
	c.Flags().StringVar(&f.compress, "compress", "none", "the `compression` of the messages: zstd, lz4 or snappy")
	complete(c, "framing", "none", "newline_delimited", "length_delimited", "varint_length_delimited", "arrow")
	complete(c, "compress", "none", "zstd", "lz4", "snappy")
}

// framer returns the framer that the flags describe.
func (f *frameFlags) framer(c *cobra.Command) (*exchange.Framer, error) {
	framing, err := frame.ParseFraming(f.framing)
	if err == nil && framing == frame.Auto {
		err = errors.New("auto is for workers: use a specific one")
	}
	if err != nil {
		return nil, fmt.Errorf("--framing: %w", err)
	}
	encoding, err := compression.ParseResult(f.compress)
	if err != nil {
		return nil, fmt.Errorf("--compress: %w", err)
	}
	switch {
	case f.records < 1 || f.records > frame.DefaultMaxRecords:
		return nil, fmt.Errorf("--records is %d: give 1 to %d", f.records, frame.DefaultMaxRecords)
	case framing == frame.None && c.Flags().Changed("records"):
		return nil, errors.New("--records is the number of records of a frame: give --framing too, such as newline_delimited")
	}
	return &exchange.Framer{Framing: framing, Records: f.records, Encoding: encoding}, nil
}

// noteMisread tells on standard error if a worker with this configuration reads the messages as something else.
func noteMisread(cfg *config.Config, f *exchange.Framer) {
	if reads := cfg.Framing; f.Framing != frame.None && reads != f.Framing.String() && reads != frame.Auto.String() {
		fmt.Fprintf(os.Stderr, "note: a worker splits these frames if MILLRACE_FRAMING is %s or auto; here it is %s\n", f.Framing, reads)
	}
	if reads := cfg.Decompress; f.Encoding != compression.None && reads != f.Encoding.String() && reads != compression.Auto.String() {
		fmt.Fprintf(os.Stderr, "note: a worker decompresses these messages if MILLRACE_DECOMPRESS is %s or auto; here it is %s\n", f.Encoding, reads)
	}
}
