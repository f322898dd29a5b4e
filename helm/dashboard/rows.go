package main

import "fmt"

// row is a heading and the panels below it.
type row struct {
	title  string
	panels []*panel
}

// Label selectors for the workers and the devices that the reader has selected.
const (
	worker = `namespace=~"$namespace",pod=~"$pod"`
	chosen = worker + `,device=~"$device"`
)

// rate returns the expression for the increase of a counter per second.
func rate(counter, selector string) string {
	return fmt.Sprintf("rate(%s{%s}[$__rate_interval])", counter, selector)
}

func rows() []row {
	return []row{
		{"A payload's path, from left to right", way()},
		{"What is wrong now", wrong()},
		{"In and out", throughput()},
		{"Frames", frames()},
		{"Overlap", overlap()},
		{"Time", times()},
		{"Batches", batches()},
		{"Memory", memory()},
		{"Delivery", delivery()},
		{"The GPU itself, as DCGM sees it", gpu()},
	}
}

// way returns one figure for each step of a payload's path. A step that is not green is slow.
func way() []*panel {
	return []*panel{
		stat("1 Backlog", "Messages that wait in the stream for the consumer.", "short").
			ask(query{`max(millrace_consumer_pending{` + worker + `})`, "waiting"}).
			runbook("MillraceBacklogGrowingLanesIdle", "MillraceBacklogGrowingLanesFull"),
		stat("2 Fetch", "Bytes of settled payloads per second.", "binBps").
			ask(query{`sum(` + rate("millrace_payload_bytes_total", worker+`,direction="in"`) + `)`, "in"}).
			runbook("MillraceNoProgress"),
		stat("3 Batch", "How full batches are, in bytes or in payloads, whichever is nearer to its limit.", "percentunit").
			ask(query{`avg(device:millrace_batch_fill:ratio_rate5m{` + chosen + `})`, "full"}).
			runbook("MillraceBatchFillLow"),
		engine("4 Copy in", "copy_in"),
		engine("5 Compute", "compute"),
		engine("6 Copy out", "copy_out"),
		stat("7 Publish", "How long 99 of 100 batches take until their results are stored.", "s").
			ask(query{`max(device_stage:millrace_stage_seconds:p99_rate5m{` + chosen + `,stage="publish"})`, "p99"}).
			steps(above(1, "orange")).runbook("MillracePublishSlow"),
		stat("8 Settle", "Share of AckWait that is left for 95 % of messages.", "percentunit").
			ask(query{`min(pod:millrace_ack_headroom:p05_ratio_rate5m{` + worker + `})`, "left"}).
			steps(below(0.2, "orange")).runbook("MillraceAckHeadroomLow"),
	}
}

// engine returns the step for one engine: its busy share on the busiest device.
func engine(title, name string) *panel {
	return stat(title, "Share of time in which this engine is busy, on the busiest device. The one nearest to 100 % is the bottleneck.", "percentunit").
		ask(query{`max(engine:millrace_engine_busy:ratio_rate5m{` + chosen + `,engine="` + name + `"})`, "busy"}).
		runbook("MillraceOverlapLow")
}

// wrong returns panels with the firing alerts and the state of the devices.
func wrong() []*panel {
	alerts := newPanel("table", "Firing alerts", "From the rules of the same chart. A name links to its runbook.", "", 12, 5)
	alerts.ask(query{`sum by (alertname, severity, namespace, pod) (ALERTS{alertname=~"Millrace.+",alertstate="firing"})`, ""})
	alerts.Targets[0].Format, alerts.Targets[0].Instant, alerts.Targets[0].Range = "table", true, false
	alerts.Transformations = []object{{"id": "organize", "options": object{"excludeByName": object{"Time": true, "Value": true}}}}
	alerts.FieldConfig.Defaults["links"] = []object{link("Runbook", "${runbooks}/${__data.fields.alertname}.md")}
	alerts.Options = object{"showHeader": true, "cellHeight": "sm"}

	return []*panel{
		alerts,
		stat("On the CPU", "Workers that found no GPU and compute on the CPU.", "short").
			ask(query{`sum(millrace_device_fallback{` + worker + `})`, "workers"}).
			steps(above(1, "orange")).runbook("MillraceDeviceFallback"),
		stat("Lost devices", "Restarts in the last hour with the exit code for a lost device.", "short").
			ask(query{`sum(increase(kube_pod_container_status_restarts_total{` + worker + `}[1h])` +
				` and on (namespace, pod, container) kube_pod_container_status_last_terminated_exitcode{` + worker + `} == 70` +
				` and on (namespace, pod) millrace_build_info) or vector(0)`, "restarts"}).
			steps(above(0.5, "red")).runbook("MillraceDeviceLost", "MillraceRestartsDeviceLost"),
		stat("In flight", "Batches that are being filled, computed or settled.", "short").
			ask(query{`sum(millrace_in_hand_batches{` + worker + `})`, "batches"}).runbook("MillraceNoProgress"),
		stat("Stalled", "Consumers that have messages but deliver none, according to the worker that sees most of them.", "short").
			ask(query{`max(millrace_consumer_stalled{` + worker + `})`, "consumers"}).
			steps(above(1, "orange")).runbook("MillraceConsumerStalled"),
		stat("Stream not trimmed", "Workers that would remove processed inputs and may not. The metric's label has the reason.", "short").
			ask(query{`sum by (reason) (millrace_trim_held{` + worker + `,reason!="not_trimmed"}) > 0 or on() vector(0)`, "{{reason}}"}).
			steps(above(1, "orange")).runbook("MillraceInputsKept"),
		stat("Restarted partitions", "In the last 10 minutes, because of errors.", "short").
			ask(query{`sum(increase(millrace_partition_restarts_total{` + worker + `}[10m]))`, "restarts"}).
			steps(above(20, "orange")).runbook("MillracePartitionRestarts"),
		stat("Workers", "Workers that respond to scrapes.", "short").
			ask(query{`sum(up{` + worker + `} and on (instance, job) millrace_build_info)`, "up"}).
			steps(below(1, "red")).runbook("MillraceWorkerDown", "MillraceNoWorkers"),
	}
}

func throughput() []*panel {
	return []*panel{
		graph("Backlog", "Messages that wait in the stream, and those in flight. Each worker sees all of them, so this is the maximum, not the sum.", "short", 8).
			ask(query{`max by (namespace, job) (millrace_consumer_pending{` + worker + `})`, "{{namespace}} {{job}}"},
				query{`max by (namespace, job) (millrace_consumer_ack_pending{` + worker + `})`, "{{namespace}} {{job}} in flight"}).
			runbook("MillraceBacklogGrowingLanesIdle", "MillraceBacklogGrowingLanesFull"),
		graph("Messages per second, by outcome", "", "mps", 8).stacked().
			ask(query{`sum by (outcome) (` + rate("millrace_messages_total", worker) + `)`, "{{outcome}}"},
				query{`sum(` + rate("millrace_deadletters_without_payload_total", worker) + `)`, "dead letters without payload"}).
			runbook("MillraceDeadLetters"),
		graph("Bytes per second", "Of settled payloads, and of the results published for them.", "binBps", 8).
			ask(query{`sum by (direction) (` + rate("millrace_payload_bytes_total", worker) + `)`, "{{direction}}"}),
		graph("Wanted pods", "Pods that process the lag within the autoscaler's goal, and workers that Prometheus reaches.", "short", 8).
			ask(query{`max by (namespace, job) (job:millrace_wanted_pods:max1h{namespace=~"$namespace"})`, "{{namespace}} {{job}} wanted"},
				query{`count by (namespace, job) (millrace_build_info{` + worker + `})`, "{{namespace}} {{job}} running"}).
			runbook("MillraceBacklogGrowingLanesFull", "MillraceNoWorkers"),
		graph("Partitions", "With exclusive delivery: how many each worker owns. A worker owns an assigned partition from its first input on, so there are none while no inputs come.", "short", 8).stacked().
			ask(query{`millrace_partitions_owned{` + worker + `}`, "{{pod}}"}),
		graph("Inputs removed per second", "Processed inputs that the workers remove from the input stream.", "mps", 8).
			ask(query{`sum by (namespace, job) (` + rate("millrace_trimmed_inputs_total", worker) + `)`, "{{namespace}} {{job}}"}),
		graph("Inputs kept for a consumer", "From the first input that the stream must keep to its end, with the name of the consumer that needs that input.", "short", 8).
			ask(query{`max by (namespace, consumer) (millrace_trim_floor_distance{` + worker + `})`, "{{namespace}} {{consumer}}"}),
	}
}

// frames returns panels that are empty if no message is a frame or compressed.
func frames() []*panel {
	return []*panel{
		graph("Records per second, by outcome", "Records of frames. Messages that are not frames do not count.", "rps", 8).stacked().
			ask(query{`sum by (outcome) (` + rate("millrace_records_total", worker) + `)`, "{{outcome}}"}),
		share("Failed records, of all", "Records of frames that became dead letters. The other records of their frames have results.", 8).
			ask(query{`sum by (namespace, job) (` + rate("millrace_records_total", worker+`,outcome!~"ok|null"`) + `) / sum by (namespace, job) (` +
				rate("millrace_records_total", worker) + `)`, "{{namespace}} {{job}}"}).
			runbook("MillraceDeadLetters"),
		graph("Records in a frame", "Mean. Small frames cost the server as much as single records.", "short", 8).
			ask(query{`sum by (pod) (` + rate("millrace_frame_records_sum", worker) + `) / sum by (pod) (` +
				rate("millrace_frame_records_count", worker) + `)`, "{{pod}}"}),
		graph("Parts of a frame's result", "Mean. It is more than 1 if results exceed the server's max_payload.", "short", 8).
			ask(query{`sum by (pod) (` + rate("millrace_frame_result_parts_total", worker) + `) / sum by (pod) (` +
				rate("millrace_frame_records_count", worker) + `)`, "{{pod}}"}),
		graph("Cores that unpack", "How many cores decompress messages, and find their records.", "short", 8).stacked().
			ask(query{`sum by (step) (` + rate("millrace_unpack_seconds_total", worker) + `)`, "{{step}}"}),
		graph("Compressed messages, bytes per second", "Before decompression (in) and after it (out).", "binBps", 8).
			ask(query{`sum by (direction) (` + rate("millrace_decompression_bytes_total", worker) + `)`, "{{direction}}"}),
	}
}

func overlap() []*panel {
	return []*panel{
		share("Overlap achieved", "Share of the time that overlap can hide which was hidden: 0 if engines take turns, 100 % if the device is busy no longer than its busiest engine.", 8).
			line(below(0.5, "orange")).
			ask(query{`device:millrace_overlap_achieved:ratio_rate5m{` + chosen + `}`, "{{pod}} {{device}}"}).
			runbook("MillraceOverlapLow"),
		share("Overlap, of busy time", "Share of the busy time in which two or more engines are busy.", 8).
			ask(query{`device:millrace_overlap:ratio_rate5m{` + chosen + `}`, "{{pod}} {{device}}"}),
		share("Device busy", "Share of time in which any engine is busy.", 8).
			ask(query{`device:millrace_device_busy:ratio_rate5m{` + chosen + `}`, "{{pod}} {{device}}"}),
		share("Engines busy", "The engine that is nearest to 100 % is the bottleneck. If none is near, the device waits for work.", 12).
			ask(query{`engine:millrace_engine_busy:ratio_rate5m{` + chosen + `}`, "{{engine}} {{pod}} {{device}}"}),
		graph("Lanes", "Lanes by state: idle, filling a batch, or with a batch on the device.", "short", 12).stacked().
			ask(query{`sum by (state) (millrace_lanes{` + chosen + `})`, "{{state}}"}).
			runbook("MillraceBacklogGrowingLanesIdle", "MillraceBacklogGrowingLanesFull"),
	}
}

func times() []*panel {
	return []*panel{
		heat("Latency of payloads", "From a payload's receipt to the stored result.", 12).
			buckets(`sum by (le) (increase(millrace_payload_latency_seconds_bucket{` + worker + `}[$__rate_interval]))`),
		heat("Publishing a batch", "From computed results to the server's confirmation that they are stored.", 12).
			buckets(`sum by (le) (increase(millrace_stage_seconds_bucket{` + chosen + `,stage="publish"}[$__rate_interval]))`).
			runbook("MillracePublishSlow"),
		graph("Stages of a batch, median", "Time within which half of all batches finish each stage.", "s", 12).
			ask(query{`max by (stage) (device_stage:millrace_stage_seconds:p50_rate5m{` + chosen + `})`, "{{stage}}"}),
		graph("Stages of a batch, 99th percentile", "Time within which 99 of 100 batches finish each stage.", "s", 12).
			ask(query{`max by (stage) (device_stage:millrace_stage_seconds:p99_rate5m{` + chosen + `})`, "{{stage}}"}),
	}
}

func batches() []*panel {
	return []*panel{
		share("Batch fill", "In bytes or in payloads, whichever is nearer to its limit.", 8).line(below(0.1, "orange")).
			ask(query{`device:millrace_batch_fill:ratio_rate5m{` + chosen + `}`, "{{pod}} {{device}}"}).
			runbook("MillraceBatchFillLow"),
		graph("Why batches close", "bytes and count: the batch was full. linger: its oldest payload had waited long enough, or no more payloads arrived.", "ops", 8).stacked().
			ask(query{`sum by (reason) (` + rate("millrace_batch_close_total", chosen) + `)`, "{{reason}}"}),
		graph("Size of a batch", "", "bytes", 8).
			ask(query{`sum by (pod, device) (` + rate("millrace_batch_bytes_sum", chosen) + `) / sum by (pod, device) (` +
				rate("millrace_batch_bytes_count", chosen) + `)`, "{{pod}} {{device}}"}),
	}
}

func memory() []*panel {
	return []*panel{
		graph("Scratch pool", "Device memory of the pool: in use, taken from the device, the maximum in use, and the limit.", "bytes", 8).
			ask(
				query{`sum by (pod, device, state) (millrace_scratch_pool_bytes{` + chosen + `})`, "{{state}} {{pod}} {{device}}"},
				query{`sum by (pod, device) (millrace_scratch_limit_bytes{` + chosen + `})`, "limit {{pod}} {{device}}"},
			).runbook("MillraceScratchPoolNearCap"),
		share("Scratch in use, of the limit", "Maximum over five minutes.", 8).line(above(0.9, "orange")).
			ask(query{`device:millrace_scratch_used:ratio_max5m{` + chosen + `}`, "{{pod}} {{device}}"}).
			runbook("MillraceScratchPoolNearCap"),
		graph("Scratch allocations per second", "Refused allocations wait until another batch ends.", "ops", 8).
			ask(
				query{`sum by (pod, device) (` + rate("millrace_scratch_allocations_total", chosen) + `)`, "given {{pod}} {{device}}"},
				query{`sum by (pod, device) (` + rate("millrace_scratch_allocation_failures_total", chosen) + `)`, "refused {{pod}} {{device}}"},
			),
		graph("Host memory of batches", "Pinned on a GPU, and pageable on a CPU.", "bytes", 12).
			ask(
				query{`sum by (pod, device) (millrace_pinned_bytes{` + chosen + `})`, "pinned {{pod}} {{device}}"},
				query{`sum by (pod, device) (millrace_pageable_bytes{` + chosen + `})`, "pageable {{pod}} {{device}}"},
			),
		graph("Memory of the process", "All of it, including pinned memory.", "bytes", 12).
			ask(query{`process_resident_memory_bytes{` + worker + `} and on (instance, job) millrace_build_info`, "{{pod}} {{instance}}"}),
		graph("Memory for payloads in flight", "Payloads, their results and related data: the reserved amount and the limit.", "bytes", 12).
			ask(query{`sum by (pod, state) (millrace_memory_budget_bytes{` + worker + `})`, "{{state}} {{pod}}"}),
		graph("Waits for memory per second", "How often a payload had to wait until another one was settled.", "ops", 12).
			ask(query{`sum by (pod) (` + rate("millrace_memory_budget_waits_total", worker) + `)`, "{{pod}}"}),
	}
}

func delivery() []*panel {
	return []*panel{
		graph("Ack headroom", "Share of AckWait that is left for 95 % of messages.", "percentunit", 8).line(below(0.2, "orange")).
			ask(query{`pod:millrace_ack_headroom:p05_ratio_rate5m{` + worker + `}`, "{{pod}}"}).
			runbook("MillraceAckHeadroomLow"),
		graph("Redelivered, of all messages", "", "percentunit", 8).line(above(0.01, "orange")).
			ask(query{`pod:millrace_redeliveries:ratio_rate15m{` + worker + `}`, "{{pod}}"}).
			runbook("MillraceRedeliveries"),
		graph("Dead letters, negative acknowledgements, duplicates", "", "mps", 8).
			ask(query{`sum by (outcome) (` + rate("millrace_messages_total", worker+`,outcome!="published"`) + `)`, "{{outcome}}"}).
			runbook("MillraceDeadLetters"),
		graph("Held back", "Payloads that fail on their own while no other payload succeeds. They are retried.", "short", 12).line(above(1, "orange")).
			ask(query{`millrace_held_back_payloads{` + worker + `}`, "{{pod}}"}).
			runbook("MillraceHeldBack"),
		graph("Faults of operators", "Failures that an operator is to blame for. One that loses the device is rarely visible here, because the process ends with it.", "short", 12).
			ask(query{`sum by (operator, fault) (increase(millrace_operator_faults_total{` + worker + `}[15m]))`, "{{operator}} {{fault}}"}).
			runbook("MillraceOperatorFaults"),
		graph("Third-last fault of an operator", "How long ago it was observed, also by an earlier process.", "s", 12).line(below(3600, "orange")).
			ask(query{`time() - (max by (operator) (millrace_operator_third_last_fault_timestamp_seconds{` + worker + `}) > 0)`, "{{operator}}"}).
			runbook("MillraceOperatorFaults"),
		graph("Reconnects in 15 minutes", "", "short", 12).line(above(10, "orange")).
			ask(query{`increase(millrace_nats_reconnects_total{` + worker + `}[15m])`, "{{pod}}"}).
			runbook("MillraceReconnectStorm"),
		graph("Device errors", "Failed calls, by kind. A lost device is rarely visible here, because the process ends with it.", "short", 12).
			ask(query{`sum by (kind) (increase(millrace_device_errors_total{` + chosen + `}[15m]))`, "{{kind}}"}).
			runbook("MillraceDeviceLost"),
		graph("Suppressed log lines", "Lines whose message repeats more than ten times in ten seconds, by level. The pod's log shows which message it is.", "short", 12).
			ask(query{`sum by (level) (increase(millrace_log_suppressed_total{` + worker + `}[15m]))`, "{{level}}"}),
		graph("Connected to NATS", "1 while all connections of a worker are up. A worker also starts at 0, and waits until it can use the server.", "short", 12).
			ask(query{`millrace_nats_connected{` + worker + `}`, "{{pod}}"}),
	}
}

// ofGPU returns a metric of dcgm-exporter for the GPUs that workers use: DCGM's label UUID corresponds to Millrace's label
// device. A GPU that several pods share appears once for each.
func ofGPU(metric string) query {
	return query{
		`group by (namespace, pod, device) (millrace_device_busy_seconds_total{` + chosen + `})` +
			` * on (device) group_left () max by (device) (label_replace(` + metric + `, "device", "$1", "UUID", "(.+)"))`,
		"{{pod}} {{device}}",
	}
}

func gpu() []*panel {
	return []*panel{
		graph("Utilisation", "Share of time in which any kernel ran. It does not show how much of the GPU the kernel used.", "percent", 8).ask(ofGPU("DCGM_FI_DEV_GPU_UTIL")),
		share("Compute engine active", "", 8).ask(ofGPU("DCGM_FI_PROF_GR_ENGINE_ACTIVE")),
		share("Device memory active", "Share of cycles in which its memory moved data.", 8).ask(ofGPU("DCGM_FI_PROF_DRAM_ACTIVE")),
		graph("Device memory in use", "", "mbytes", 6).ask(ofGPU("DCGM_FI_DEV_FB_USED")),
		graph("Temperature", "", "celsius", 6).ask(ofGPU("DCGM_FI_DEV_GPU_TEMP")),
		graph("Power", "", "watt", 6).ask(ofGPU("DCGM_FI_DEV_POWER_USAGE")),
		graph("Last XID error", "The driver's number of the last error, 0 for none. 48, 63, 64, 74, 79, 94 and 95 are hardware errors.", "none", 6).
			ask(ofGPU("DCGM_FI_DEV_XID_ERRORS")).runbook("MillraceRestartsDeviceLost"),
	}
}
