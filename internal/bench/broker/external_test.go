package broker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/internal/bench"
)

// twice makes the program of moveForBench store the first result twice; deaf makes it ignore its inputs.
const twice, deaf = "MILLRACE_TEST_TWICE", "MILLRACE_TEST_DEAF"

// moveForBench is the program that the tests compare with. It stores the size of each message until it is interrupted.
func moveForBench() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if os.Getenv(deaf) != "" {
		return errors.New("deaf")
	}
	nc, err := nats.Connect(os.Getenv(envURL))
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	c, err := js.CreateConsumer(ctx, os.Getenv(envStream), jetstream.ConsumerConfig{
		Durable: "external", FilterSubject: os.Getenv(envSubjects), AckPolicy: jetstream.AckExplicitPolicy,
	})
	if err != nil {
		return err
	}
	messages, err := c.Messages()
	if err != nil {
		return err
	}
	defer messages.Stop()
	for again := os.Getenv(twice) != ""; ; again = false {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return nil // interrupted
		}
		result := fmt.Append(nil, len(m.Data()))
		if _, err := js.Publish(ctx, os.Getenv(envResults), result); err != nil {
			return err
		}
		if again {
			if _, err := js.Publish(ctx, os.Getenv(envResults), result); err != nil {
				return err
			}
		}
		if err := m.DoubleAck(ctx); err != nil {
			return err
		}
	}
}

// measureExternal measures this test program beside Millrace.
func measureExternal(t *testing.T) (rowsOf func(name string) int, table string, err error) {
	t.Helper()
	b := newBench(t, Options{External: []string{os.Args[0]}})
	o := tiny(openHost(t), b)
	o.Rows = []string{rowFramesShared, rowExternal}
	var out strings.Builder
	o.Out = &out
	r, err := bench.Run(t.Context(), o)
	if err != nil {
		return nil, "", err
	}
	for _, row := range rows(r, rowFramesShared) {
		if row.Framing == "newline_delimited" && row.Compression == "none" {
			wantFigures(t, row, figureOverExternal)
		}
	}
	for _, row := range rows(r, rowExternal) {
		wantFigures(t, row, figureRecords, figureBytes, figureWire)
		if _, ok := row.Figure(bench.FigureCores); ok {
			t.Error("the processor time of another program is unknown, but the row has some")
		}
	}
	return func(name string) int { return len(rows(r, name)) }, out.String(), nil
}

// TestAnotherProgramIsMeasuredBesideMillrace: Millrace's rows have the ratio to a program that moves the same messages.
func TestAnotherProgramIsMeasuredBesideMillrace(t *testing.T) {
	count, table, err := measureExternal(t)
	if err != nil {
		t.Fatal(err)
	}
	if n := count(rowExternal); n != 1 {
		t.Errorf("%d rows, want one", n)
	}
	if !strings.Contains(table, "\n"+rowExternal+" ") || !strings.Contains(table, "x external") {
		t.Errorf("the tables don't show the program:\n%s", table)
	}
}

// TestAnotherProgramFails: a program that stores something twice, ends early or does not exist ends the run with an error that says so.
func TestAnotherProgramFails(t *testing.T) {
	t.Run("twice", func(t *testing.T) {
		t.Setenv(twice, "1")
		if _, _, err := measureExternal(t); err == nil || !strings.Contains(err.Error(), "WRONG RESULT") {
			t.Errorf("the error is %v", err)
		}
	})
	t.Run("ends", func(t *testing.T) {
		t.Setenv(deaf, "1")
		if _, _, err := measureExternal(t); err == nil || !strings.Contains(err.Error(), "ended with 0 of") {
			t.Errorf("the error is %v", err)
		}
	})
	t.Run("missing", func(t *testing.T) {
		b := newBench(t, Options{External: []string{"/nowhere/program"}})
		o := tiny(openHost(t), b)
		o.Rows = []string{rowExternal}
		if _, err := bench.Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), "start the program of --external") {
			t.Errorf("the error is %v", err)
		}
	})
}
