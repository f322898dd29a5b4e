package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/textproto"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/spf13/cobra"

	"millrace/internal/cliclient"
	"millrace/internal/compression"
	"millrace/internal/config"
	"millrace/internal/console"
	"millrace/internal/frame"
	"millrace/internal/ingest/embedded"
	"millrace/internal/ingest/natsconn"
)

type sendFlags struct {
	stream  streamFlag
	subject string
	headers []string
	lines   bool
	body    bodyFlags
	records int // maximum number of records per frame
	rate    float64
}

func sendCommand() *cobra.Command {
	f := &sendFlags{}
	c := &cobra.Command{
		Use: "send [FILE]...", Short: "send payloads to the input stream",
		Long: "Sends each FILE as one payload, each of its lines with --lines, or frames of its lines with --framing. Without a FILE, or for the FILE -, it reads standard input. It waits until " +
			"the server has stored every payload. Exit status 1 if a payload was not stored.\n\n" +
			"It reads the same MILLRACE_ variables as the worker. Without MILLRACE_NATS_URL it sends to the server of a worker that runs on this machine.",
		Example: "  echo 'some text' | worker send\n  worker send --lines --subject ingest.web documents.txt\n  worker send --framing newline_delimited --compress zstd documents.txt\n" +
			"  worker send --header 'Content-Type: application/x-ndjson' frame.ndjson",
		Args:    cobra.ArbitraryArgs,
		PreRunE: noEmptyFlags,
		RunE: func(cmd *cobra.Command, files []string) error {
			framer, err := f.framer(cmd)
			if err == nil && f.rate < 0 {
				err = fmt.Errorf("--rate is %v: give a number of messages a second, or 0 for no limit", f.rate)
			}
			if err != nil {
				return usageError{fmt.Errorf("send: %w", err)}
			}
			return runSend(cmd.Context(), f, framer, files)
		},
	}
	f.stream.add(c)
	c.Flags().StringVar(&f.subject, "subject", "", "the `subject` to send to; default: the first of MILLRACE_SUBJECTS, with send in the place of a wildcard")
	c.Flags().StringArrayVar(&f.headers, "header", nil, "add the `header` 'Name: value' to each message; may be repeated")
	c.Flags().BoolVar(&f.lines, "lines", false, "send each line as a payload, without its line break; not for text in UTF-16")
	f.body.add(c, "send the lines of each FILE as the records of frames")
	c.Flags().IntVar(&f.records, "records", defaultRecords, "the most records of a frame; a frame that would be larger than max_payload before compression has fewer")
	c.Flags().Float64Var(&f.rate, "rate", 0, "the most `messages` a second; 0: as fast as the server stores them")
	return c
}

func runSend(ctx context.Context, f *sendFlags, framer *cliclient.Framer, files []string) (err error) {
	cfg, err := f.stream.config(ctx, "send")
	if err != nil {
		return err
	}
	subject, err := sendSubject(cfg, f.subject)
	header, badHeader := parseHeaders(f.headers)
	if err := errors.Join(err, badHeader, stdinOnce(files)); err != nil {
		return usageError{fmt.Errorf("send: %w", err)}
	}
	noteMisread(cfg, framer)
	framer.Describe(header)
	nc, err := dialWorker(cfg, "millrace-send")
	if err != nil {
		return fmt.Errorf("send: %w", err)
	}
	defer nc.Close()
	framer.Max = int(nc.MaxPayload())
	payloads := &cliclient.Payloads{Lines: f.lines || framer.Framing != frame.None, Max: framer.Max}
	sources, size := sendSources(files)
	payloads.Sources = sources
	sender := &cliclient.Sender{Conn: nc, API: jetStreamAPI(cfg), Stream: cfg.Stream, Subject: subject, Header: header, Rate: f.rate}
	stop := func() {}
	if console.Redraws(os.Stderr) {
		stop = console.Redraw(os.Stderr, func(elapsed time.Duration) string {
			return sender.Progress(elapsed, payloads.Read(), size, console.Width(os.Stderr))
		})
	}
	report, err := sender.Send(ctx, cliclient.Start(ctx, framer.Pack(payloads.All())))
	stop()
	if err != nil {
		return fmt.Errorf("send: %w", err)
	}
	return printSent(report, cfg.Stream, subject)
}

// printSent prints the numbers of stored and failed payloads. It returns errReported if a payload was not stored.
func printSent(r *cliclient.Report, stream, subject string) error {
	stored := counted(int(r.Stored), "payload")
	if r.Records > 0 {
		stored += fmt.Sprintf(" with %s records", console.Count(r.Records))
	}
	if r.Stored > 0 || r.Failed == 0 && r.Err == nil {
		fmt.Printf("stored %s, %s, in %s (%s/s): subject %s, stream %s%s\n", stored, console.Bytes(float64(r.Bytes)), console.Time(r.Took),
			console.Count(int64(float64(r.Stored)/max(r.Took.Seconds(), 1e-9))), subject, stream, sequences(r))
	}
	for _, err := range r.Failures {
		what := "not stored:"
		if errors.Is(err, cliclient.ErrUnanswered) {
			what = "not confirmed:"
		}
		fmt.Fprintln(os.Stderr, "worker: send:", what, err)
	}
	if more := r.Failed - int64(len(r.Failures)); more > 0 {
		fmt.Fprintf(os.Stderr, "worker: send: and %d more\n", more)
	}
	switch {
	case errors.Is(r.Err, context.Canceled):
		return errors.New("send: interrupted: the remaining payloads were not sent")
	case r.Err != nil:
		return fmt.Errorf("send: %w", r.Err)
	case r.Failed > 0:
		return errReported
	}
	return nil
}

// sequences returns a text with the sequences of the stored payloads, for the end of a line. Payloads of other senders
// may be between them.
func sequences(r *cliclient.Report) string {
	switch {
	case r.Stored == 0:
		return ""
	case r.Stored == 1:
		return fmt.Sprintf(", sequence %d", r.First)
	case uint64(r.Stored) == r.Last-r.First+1:
		return fmt.Sprintf(", sequences %d to %d", r.First, r.Last)
	}
	return fmt.Sprintf(", %s of the sequences %d to %d", console.Count(r.Stored), r.First, r.Last)
}

// parseHeaders parses headers of the form "Name: value".
func parseHeaders(list []string) (nats.Header, error) {
	h := nats.Header{}
	var errs []error
	for _, text := range list {
		name, value, found := strings.Cut(text, ":")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		switch {
		case !found || name == "" || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' }) || strings.ContainsAny(value, "\r\n"):
			errs = append(errs, fmt.Errorf("--header is %q: give 'Name: value'", text))
		case strings.HasPrefix(textproto.CanonicalMIMEHeaderKey(name), "Nats-"):
			errs = append(errs, fmt.Errorf("--header is %q: the server acts on headers that begin with Nats-", text))
		default:
			h.Add(name, value)
		}
	}
	return h, errors.Join(errs...)
}

// stdinOnce returns an error if standard input is named twice, because the second payload would be empty.
func stdinOnce(files []string) error {
	if first := slices.Index(files, "-"); first >= 0 && slices.Contains(files[first+1:], "-") {
		return errors.New("standard input (-) is named twice: name it once")
	}
	return nil
}

// sendSources returns the sources to read and their total size in bytes. The size is 0 if it isn't known.
func sendSources(files []string) (sources []cliclient.Source, size int64) {
	known := true
	if len(files) == 0 {
		files = []string{"-"}
	}
	for _, name := range files {
		if name == "-" {
			known = false
			sources = append(sources, cliclient.Source{Name: "standard input", Open: openStdin})
			continue
		}
		if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() {
			size += info.Size()
		} else {
			known = false
		}
		sources = append(sources, cliclient.Source{Name: name, Open: func() (io.ReadCloser, error) { return os.Open(name) }})
	}
	if !known {
		size = 0
	}
	return sources, size
}

// openStdin returns standard input. On a terminal, it prints a prompt.
func openStdin() (io.ReadCloser, error) {
	if console.IsTerminal(os.Stdin) {
		fmt.Fprintln(os.Stderr, "type the payload, and end it with Ctrl-D")
	}
	return os.Stdin, nil
}

// dialWorker connects to the server that the worker uses. With the embedded server, a worker must be running. name is
// the name of the connection.
func dialWorker(cfg *config.Config, name string) (*nats.Conn, error) {
	url := cmp.Or(strings.Join(cfg.NATS.URL, ","), "nats://"+embeddedAddr)
	nc, err := natsconn.Open(natsServer(cfg, url), name, newLogger(cfg), func() {})
	if cfg.Embedded() && (errors.Is(err, nats.ErrNoServers) || errors.Is(err, syscall.ECONNREFUSED)) {
		return nil, errors.New(noServer(embedded.Included))
	}
	return nc, err
}

// noServer returns the text of the error for a missing embedded server. included reports whether this build has the
// embedded server.
func noServer(included bool) string {
	start := ""
	if included {
		start = "start a worker in another terminal (worker run), or "
	}
	return "no NATS server listens on " + embeddedAddr + ": " + start + "name a server in MILLRACE_NATS_URL"
}

// exchangeConfig returns the configuration for commands that only exchange messages. It ignores errors in the variables
// about operators, because it can parse only built-in operators.
func exchangeConfig() (*config.Config, error) {
	cfg, err := config.Load(nil)
	var bad *config.Error
	if !errors.As(err, &bad) {
		return cfg, err
	}
	left := slices.DeleteFunc(slices.Clone(bad.Problems), func(p config.Problem) bool {
		return p.Variable == "MILLRACE_OPERATORS" || p.Variable == "MILLRACE_OPERATOR_PATH"
	})
	if len(left) == 0 {
		return cfg, nil
	}
	return nil, &config.Error{Problems: left}
}

// bodyFlags holds the flags of `worker send` and `worker demo` for framing and compression.
type bodyFlags struct {
	framing, compress string
}

// add adds the flags to a command. about is the beginning of the help for --framing.
func (b *bodyFlags) add(c *cobra.Command, about string) {
	c.Flags().StringVar(&b.framing, "framing", "none", about+" in this `framing`: newline_delimited, length_delimited, varint_length_delimited or arrow")
	c.Flags().StringVar(&b.compress, "compress", "none", "the `compression` of the messages: zstd, lz4 or snappy")
	complete(c, "framing", "none", "newline_delimited", "length_delimited", "varint_length_delimited", "arrow")
	complete(c, "compress", "none", "zstd", "lz4", "snappy")
}

// parse returns the framing and the compression. The error names every wrong flag.
func (b *bodyFlags) parse() (framing frame.Framing, encoding compression.Encoding, err error) {
	badFraming := framing.UnmarshalText([]byte(b.framing))
	switch {
	case badFraming != nil:
	case framing == frame.Auto:
		badFraming = errors.New("auto is for workers: use a specific one")
	}
	if badFraming != nil {
		badFraming = fmt.Errorf("--framing: %w", badFraming)
	}
	encoding, badEncoding := compression.ParseResult(b.compress)
	if badEncoding != nil {
		badEncoding = fmt.Errorf("--compress: %w", badEncoding)
	}
	return framing, encoding, errors.Join(badFraming, badEncoding)
}

// defaultRecords is the default number of records per frame.
const defaultRecords = 1000

func (s *sendFlags) framer(c *cobra.Command) (*cliclient.Framer, error) {
	framing, encoding, err := s.body.parse()
	switch {
	case err != nil:
		return nil, err
	case framing == frame.JSONArray:
		return nil, errors.New("--framing: lines aren't elements of an array: use newline_delimited")
	case s.records < 1 || s.records > frame.DefaultMaxRecords:
		return nil, fmt.Errorf("--records is %d: give 1 to %d", s.records, frame.DefaultMaxRecords)
	case framing == frame.None && c.Flags().Changed("records"):
		return nil, errors.New("--records is the number of records of a frame: give --framing too, such as newline_delimited")
	}
	return &cliclient.Framer{Framing: framing, Records: s.records, Encoding: encoding}, nil
}

// noteMisread prints a note to standard error if a worker with this configuration doesn't split or decompress the
// messages.
func noteMisread(cfg *config.Config, f *cliclient.Framer) {
	if reads := cfg.Framing; f.Framing != frame.None && reads != f.Framing && reads != frame.Auto {
		fmt.Fprintf(os.Stderr, "note: a worker splits these frames if MILLRACE_FRAMING is %s or auto; here it is %s\n", f.Framing, reads)
	}
	if reads := cfg.Decompress; f.Encoding != compression.None && reads != f.Encoding && reads != compression.Auto {
		fmt.Fprintf(os.Stderr, "note: a worker decompresses these messages if MILLRACE_DECOMPRESS is %s or auto; here it is %s\n", f.Encoding, reads)
	}
}
