package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/spf13/cobra"

	"millrace/internal/cliclient"
	"millrace/internal/cliclient/audit"
	"millrace/internal/config"
)

type auditFlags struct {
	stream       streamFlag
	from, to     uint64
	since, until string
	limit        int
	json         bool
}

// defaultFindings is the default of --limit.
const defaultFindings = 20

func auditCommand() *cobra.Command {
	f := &auditFlags{}
	c := &cobra.Command{
		Use: "audit", Short: "prove that each input has exactly one outcome",
		Long: "Compares the streams, and proves that each stored input has exactly one outcome: a result, a dead letter, or that it is still pending. It also " +
			"checks that no part of a frame's result is missing, and, with exclusive delivery and commit markers, that the results of each partition are in the " +
			"order of their inputs. It lists results that are missing, double, incomplete or out of order. Exit status 1 if there is one.\n\n" +
			"Workers and publishers may run during the audit, which ends with the last input that is stored when it begins. It creates no consumer on the input " +
			"stream, and changes no stream. It takes one byte of memory per input.\n\n" +
			"It reads the same MILLRACE_ variables as the worker, and audits the deployment that they describe. Without MILLRACE_NATS_URL it reads from the " +
			"server of a worker that runs on this machine.",
		Example: "  worker audit\n  worker audit --since 24h --limit 100\n  worker audit --from 1000000 --to 1999999 --json | jq .counts",
		Args:    flagsOnly,
		PreRunE: noEmptyFlags,
		RunE:    func(cmd *cobra.Command, _ []string) error { return runAudit(cmd.Context(), f) },
	}
	f.stream.add(c)
	c.Flags().Uint64Var(&f.from, "from", 0, "the `sequence` of the first input; default: the first that the stream ever had")
	c.Flags().Uint64Var(&f.to, "to", 0, "the `sequence` of the last input; default: the last")
	c.Flags().StringVar(&f.since, "since", "", "only inputs that were stored from this `time` on: 2026-01-31T12:00:00Z, or 24h for a day ago")
	c.Flags().StringVar(&f.until, "until", "", "only inputs that were stored before this `time`")
	c.Flags().IntVar(&f.limit, "limit", defaultFindings, "the `number` of findings of each kind to name; all are counted")
	c.Flags().BoolVar(&f.json, "json", false, "print the report as a JSON object")
	return c
}

func runAudit(ctx context.Context, f *auditFlags) error {
	cfg, err := exchangeConfig()
	if err != nil {
		return err
	}
	a, err := f.auditor(time.Now())
	if err != nil {
		return usageError{fmt.Errorf("audit: %w", err)}
	}
	shards, err := f.stream.configs(ctx, cfg, "audit")
	if err != nil {
		return err
	}
	nc, err := dialWorker(cfg, "millrace-audit")
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	defer nc.Close()
	if a.JS, err = jetStreamAPI(cfg).New(nc, jetstream.WithDefaultTimeout(cliclient.RequestTimeout)); err != nil {
		return err
	}
	for _, shard := range shards {
		if len(shards) > 1 && !f.json {
			fmt.Printf("stream %s:\n", shard.Stream)
		}
		if found := f.auditShard(ctx, *a, nc, shard); found != nil && !errors.Is(found, errReported) {
			return found
		} else if found != nil {
			err = found // the other streams are audited, too
		}
	}
	return err
}

// auditShard audits an input stream and prints the report. It returns errReported if the report has an error.
func (a *auditFlags) auditShard(ctx context.Context, auditor audit.Auditor, nc *nats.Conn, cfg *config.Config) error {
	auditor.Topology = deployment(cfg)
	report, err := auditor.Run(ctx)
	if err != nil {
		return auditError(nc, err)
	}
	if a.json {
		err = json.NewEncoder(os.Stdout).Encode(report)
	} else {
		err = report.Print(os.Stdout)
	}
	if err == nil && report.Wrong() > 0 {
		return errReported
	}
	return err
}

func (a *auditFlags) auditor(now time.Time) (*audit.Auditor, error) {
	since, errSince := parseMoment("--since", a.since, now)
	until, errUntil := parseMoment("--until", a.until, now)
	err := errors.Join(errSince, errUntil)
	switch {
	case err != nil:
	case a.to > 0 && a.from > a.to:
		err = fmt.Errorf("--from is %d, and --to is %d: give a range", a.from, a.to)
	case !until.IsZero() && !since.Before(until):
		err = fmt.Errorf("--since is %s, and --until is %s: give a range", a.since, a.until)
	case a.limit < 0:
		err = fmt.Errorf("--limit is %d: give 0 or more", a.limit)
	}
	return &audit.Auditor{From: a.from, To: a.to, Since: since, Until: until, Limit: a.limit}, err
}

// parseMoment parses a time, or a duration before now. For an empty text, it returns the zero time. flag is the name of
// the flag, for errors.
func parseMoment(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("%s is %q: give a time such as 2026-01-31T12:00:00Z, or how long ago, such as 24h", flag, text)
	}
	return at, nil
}

// auditError returns the error of an audit, with advice about a missing permission.
func auditError(nc *nats.Conn, err error) error {
	if errors.Is(err, context.Canceled) {
		return errors.New("audit: interrupted")
	}
	if missing := cliclient.Refusal(nc); missing != nil {
		return fmt.Errorf("audit: %w: %w", err, missing)
	}
	return fmt.Errorf("audit: %w", err)
}
