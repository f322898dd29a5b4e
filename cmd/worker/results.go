package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"

	"github.com/spf13/cobra"

	"millrace/internal/cliclient"
	"millrace/internal/ingest/topology"
	"millrace/internal/operator"
)

type resultsFlags struct {
	stream       streamFlag
	follow, all  bool
	last         int
	subject      string
	payload      bool
	payloadBytes int
}

// Defaults of --last and --payload-bytes.
const (
	defaultLast         = 100
	defaultPayloadBytes = 4096
)

func resultsCommand() *cobra.Command {
	f := &resultsFlags{}
	c := &cobra.Command{
		Use: "results", Short: "print results and dead letters as JSON lines",
		Long: "Prints the last results, and then the last dead letters with their reason, as one JSON object per line. A frame has a line for each record. " +
			"Binary and Arrow results are decoded, and compressed results are decompressed. The command changes no stream.\n\n" +
			"It reads the same MILLRACE_ variables as the worker. Without MILLRACE_NATS_URL it reads from the server of a worker that runs on this machine.",
		Example: "  worker results --follow\n  worker results --last 5 --subject ingest.web.en\n  worker results --all | jq .dead_letter\n  worker results --last 1 --payload",
		Args:    flagsOnly,
		PreRunE: noEmptyFlags,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case f.all && cmd.Flags().Changed("last"):
				return usageError{errors.New("results: --all and --last exclude each other: give one of them")}
			case cmd.Flags().Changed("payload-bytes") && !f.payload:
				return usageError{errors.New("results: --payload-bytes is the most bytes of a payload: give --payload too")}
			case f.payloadBytes < 0:
				return usageError{fmt.Errorf("results: --payload-bytes is %d: give 1 or more, or 0 for whole payloads", f.payloadBytes)}
			}
			return runResults(cmd.Context(), f)
		},
	}
	f.stream.add(c)
	c.Flags().BoolVar(&f.follow, "follow", false, "wait for more until Ctrl-C")
	c.Flags().BoolVar(&f.all, "all", false, "begin with the first message of each stream")
	c.Flags().IntVar(&f.last, "last", defaultLast, "the `number` of messages of each stream to begin with; 0 with --follow: only new ones")
	c.Flags().StringVar(&f.subject, "subject", "", "only the outcomes of inputs with this `subject`, which may have wildcards")
	c.Flags().BoolVar(&f.payload, "payload", false, "print the payloads of dead letters, as text if they are UTF-8 and otherwise in base64, and the documents of annotated results")
	c.Flags().IntVar(&f.payloadBytes, "payload-bytes", defaultPayloadBytes, "the most `bytes` of a payload or a document to print; 0: all")
	return c
}

// maxResults returns the maximum number of bytes of a payload or a document to print. 0 means that no payload is
// printed.
func (r *resultsFlags) maxResults() int {
	switch {
	case !r.payload:
		return 0
	case r.payloadBytes == 0:
		return math.MaxInt
	}
	return r.payloadBytes
}

func runResults(ctx context.Context, f *resultsFlags) error {
	cfg, err := f.stream.config(ctx, "results")
	if err != nil {
		return err
	}
	if f.last < 0 || f.last == 0 && !f.follow {
		return usageError{fmt.Errorf("results: --last is %d: give 1 or more, or --all", f.last)}
	}
	if err := checkInputFilter(cfg, f.subject); err != nil {
		return usageError{fmt.Errorf("results: %w", err)}
	}
	sources, err := findOperators(cfg)
	if err != nil {
		fmt.Fprintln(os.Stderr, "note:", err) // the user's operators are then unknown
	}
	nc, err := dialWorker(cfg, "millrace-results")
	if err != nil {
		return fmt.Errorf("results: %w", err)
	}
	defer nc.Close()
	p := &cliclient.Printer{
		Conn: nc, Stream: f.stream.name, Subject: f.subject, Follow: f.follow, Last: uint64(f.last), All: f.all, Payload: f.maxResults(),
		Topology: topology.Topology{API: jetStreamAPI(cfg), Subjects: cfg.Subjects, ResultStream: cfg.ResultStream, ResultPrefix: cfg.ResultPrefix, DeadLetterPrefix: cfg.DeadletterPrefix},
		Parse:    func(spec string) (operator.Operator, error) { return operator.Parse(spec, sources...) },
		Out:      os.Stdout, Notes: os.Stderr,
	}
	if err = p.Print(ctx); errors.Is(err, context.Canceled) {
		return errors.New("results: interrupted")
	}
	return err
}
