package main

import (
	"fmt"
	"os"
	"strings"

	"millrace/internal/telemetry"
)

// connectionName is the name of the worker's connections to NATS.
const connectionName = "millrace"

// Limits of what the page shows of the workers that share partitions.
const (
	maxMembers       = 20
	maxPartitionText = 120 // bytes
)

// job returns the state of this worker's job, and the workers that share it.
func (a *app) job() telemetry.Job {
	j := a.metrics.Job()
	host, _ := os.Hostname() // the process is enough
	j.Worker = telemetry.JobWorker{Host: host, Process: os.Getpid(), Connection: connectionName}
	if !a.joined.Load() || a.cfg.Delivery != "exclusive" {
		return j
	}
	j.Partitions = a.cfg.Partitions
	a.worker.Shares(func(name string, self bool, owns []int) {
		if len(j.Members) < maxMembers {
			j.Members = append(j.Members, telemetry.JobMember{Name: name, Self: self, Owns: len(owns), Partitions: ranges(owns)})
		}
	})
	return j
}

// ranges returns ascending numbers as text of bounded length: "0-2, 5".
func ranges(numbers []int) string {
	var out strings.Builder
	for i := 0; i < len(numbers); {
		last := i
		for last+1 < len(numbers) && numbers[last+1] == numbers[last]+1 {
			last++
		}
		if out.Len() > maxPartitionText {
			return out.String() + " ..."
		}
		if i > 0 {
			out.WriteString(", ")
		}
		fmt.Fprint(&out, numbers[i])
		if last > i {
			fmt.Fprintf(&out, "-%d", numbers[last])
		}
		i = last + 1
	}
	return out.String()
}
