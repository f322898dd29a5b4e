// Command peers compares Millrace with other programs that do the same job from stream to stream. Documents are JSON objects with the
// member text. The job keeps documents with a long text, about half of them, and adds the length and the CRC-32C of the text:
//
//	make build
//	go run ./tools/peers -worker bin/worker -connect /usr/local/bin/redpanda-connect
//
// The peers are:
//
//   - Millrace with shared and with exclusive delivery, and with its defaults. MILLRACE_ variables of the environment,
//     such as MILLRACE_DEVICE, also apply.
//   - go-worker, a worker in plain Go with encoding/json (goworker.go).
//   - Redpanda Connect with connect.yaml, if -connect names its program.
//
// Every peer runs in its own process. The NATS server runs in this command's process and keeps its streams in files. All peers read the
// same inputs, which are stored before the first round. The rounds of the peers alternate. A round begins before the first delivery and
// ends when the server has received every acknowledgement. After each round, the command checks that each long document was stored exactly
// once, and it checks the content of a sample. The command needs Linux.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
)

// options are the command's flags.
type options struct {
	worker, connect, config   string
	frames, documents, rounds int
}

func main() {
	var o options
	flag.StringVar(&o.worker, "worker", "", "path of Millrace's program (required)")
	flag.StringVar(&o.connect, "connect", "", "path of Redpanda Connect's program; empty: Connect is left out")
	flag.StringVar(&o.config, "config", "tools/peers/connect.yaml", "paths of configurations of Redpanda Connect, separated by commas")
	flag.IntVar(&o.frames, "frames", 2048, "messages of 512 KiB with documents of 512 B; 0: none")
	flag.IntVar(&o.documents, "documents", 400_000, "messages with one document of 2 KiB; 0: none")
	flag.IntVar(&o.rounds, "rounds", 5, "rounds of each peer")
	flag.Parse()
	if o.worker == "" || o.rounds < 1 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	run := func() error { return measureAll(ctx, o) }
	if flag.Arg(0) == goWorkerName {
		run = func() error { return goWorker(ctx) }
	}
	err := run()
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

// measureAll prints the versions of the programs and one table for each load.
func measureAll(ctx context.Context, o options) error {
	fmt.Printf("peers: %s, %d cores\n", runtime.Version(), runtime.NumCPU())
	for _, command := range [][]string{{o.worker, "version"}, {o.connect, "--version"}} {
		if command[0] == "" {
			fmt.Println("Redpanda Connect is left out: name its program with -connect")
			continue
		}
		out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w: %s", strings.Join(command, " "), err, out)
		}
		fmt.Printf("%s:\n%s\n", command[0], out)
	}
	for _, l := range []load{
		{name: "JSON lines of 512 B in messages of 512 KiB", messages: o.frames, records: 1024, size: 512},
		{name: "One JSON document of 2 KiB per message", messages: o.documents, records: 1, size: 2 << 10},
	} {
		if l.messages == 0 {
			continue
		}
		if err := measure(ctx, o, l); err != nil {
			return fmt.Errorf("%s: %w", l.name, err)
		}
	}
	return nil
}

// measure measures all peers with one load and prints a table with the median round of each peer.
func measure(ctx context.Context, o options, l load) (err error) {
	s, err := start()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	size, err := s.fill(ctx, l)
	if err != nil {
		return err
	}
	peers := peersOf(o, l, s.URL())
	rounds := make([][]figure, len(peers))
	for r := range o.rounds {
		for i := range peers {
			i = (i + r) % len(peers)
			f, err := s.round(ctx, peers[i], l)
			if err != nil {
				return fmt.Errorf("%s: %w", peers[i].name, err)
			}
			rounds[i] = append(rounds[i], f)
			fmt.Fprintf(os.Stderr, "round %d of %d: %s: %.2f s\n", r+1, o.rounds, peers[i].name, f.seconds)
		}
	}
	fmt.Printf("%s: %d documents, %.0f MB, medians of %d rounds\n\n", l.name, l.total(), float64(size)/1e6, o.rounds)
	fmt.Print("| peer | documents/s (least-most) | MB/s | cores | rate of Millrace, shared, over it |\n| --- | --- | --- | --- | --- |\n")
	for _, list := range rounds {
		slices.SortFunc(list, func(a, b figure) int { return cmp.Compare(b.seconds, a.seconds) })
	}
	middle, documents := o.rounds/2, float64(l.total())
	for i, p := range peers {
		f := rounds[i][middle]
		fmt.Printf("| %s | %.0f (%.0f-%.0f) | %.0f | %.2f | %.2f |\n", p.name, documents/f.seconds, documents/rounds[i][0].seconds,
			documents/rounds[i][o.rounds-1].seconds, float64(size)/1e6/f.seconds, f.cpu/f.seconds, f.seconds/rounds[0][middle].seconds)
	}
	fmt.Println()
	return nil
}
