{{/*
This file computes the number of payloads that can be in flight: delivered and not yet acknowledged. Scaling and the consumer's limit depend on
this number. internal/memory has the same factors, and helm/test compares them.
*/}}

{{/* millrace.devices returns the number of devices per pod. */}}
{{- define "millrace.devices" -}}
{{ eq .Values.gpu.mode "none" | ternary 1 .Values.gpu.count | int64 }}
{{- end }}

{{/* millrace.fullLanes returns the number of payloads in one full batch on each lane of a pod. */}}
{{- define "millrace.fullLanes" -}}
{{ mul (include "millrace.devices" .) .Values.config.lanes .Values.config.batchPayloads }}
{{- end }}

{{/* millrace.maxPods returns the maximum number of pods. */}}
{{- define "millrace.maxPods" -}}
{{ eq .Values.autoscaling.mode "none" | ternary .Values.replicaCount .Values.autoscaling.maxReplicas | int64 }}
{{- end }}

{{/*
millrace.maxAckPending returns MILLRACE_MAX_ACK_PENDING, the MaxAckPending of a consumer that the worker creates. With shared delivery all pods
share one consumer, so it is the worker's own default (8 full batches per lane) times the maximum number of pods, up to the limit of the
variable. This value is less than the sum of millrace.window over all pods. With exclusive delivery, each partition has its own consumer, and the
worker replaces 0 with its default.
*/}}
{{- define "millrace.maxAckPending" -}}
{{- if gt (int64 .Values.config.maxAckPending) 0 -}}
{{ int64 .Values.config.maxAckPending }}
{{- else if eq .Values.config.delivery "exclusive" -}}
0
{{- else -}}
{{ min (mul 8 (include "millrace.fullLanes" .) (include "millrace.maxPods" .)) 10000000 }}
{{- end -}}
{{- end }}

{{/*
millrace.window returns the maximum number of payloads that one pod can have in flight: 16 batches per lane between pull and acknowledgement and,
for each consumer, two outstanding pull requests of 4096 messages and a queue of 4096 messages. With shared delivery, a pod has one consumer for
each input stream. With exclusive delivery, it has one for each partition of each stream, because it may own all partitions. The chart doesn't know
the number of streams that match a pattern, and counts one. If the size of payloads is known, their bytes are also limited: four full batches per
lane and, for each consumer, three times 2 MiB. With shared delivery, the consumers' limit for all pods together is another bound. The recording
rules in files/rules.yaml compute the same number from metrics, without this last bound.
*/}}
{{- define "millrace.window" -}}
{{- $streams := include "millrace.patterns" .Values.config | fromJsonArray | len -}}
{{- $consumers := eq .Values.config.delivery "exclusive" | ternary .Values.config.partitions 1 | mul $streams -}}
{{- $held := add (mul 16 (include "millrace.fullLanes" .)) (mul 12288 $consumers) -}}
{{- $size := int64 .Values.autoscaling.payloadBytes -}}
{{- if gt $size 0 -}}
{{- $bytes := add (mul 4 (include "millrace.devices" .) .Values.config.lanes (include "millrace.bytes" .Values.config.batchBytes)) (mul 6291456 $consumers) -}}
{{- $held = min $held (max 1 (div $bytes $size)) -}}
{{- end -}}
{{- $allowed := include "millrace.maxAckPending" . | mul $streams -}}
{{ gt $allowed 0 | ternary (min $held $allowed) $held }}
{{- end }}

{{/*
millrace.lagThreshold returns the lag per pod above which another pod is added, if the rate isn't measured. If podRate is set, this is the number
of messages that a pod processes in the time of the goal. It is at least lagFactor times the number of messages that a pod can have in flight.
*/}}
{{- define "millrace.lagThreshold" -}}
{{- if gt (int64 .Values.autoscaling.lagThreshold) 0 -}}
{{ int64 .Values.autoscaling.lagThreshold }}
{{- else -}}
{{- $goal := mulf .Values.autoscaling.backlogSeconds .Values.autoscaling.podRate -}}
{{ max (ceil $goal | int64) (mulf (include "millrace.window" .) .Values.autoscaling.lagFactor | ceil | int64) }}
{{- end -}}
{{- end }}

{{/* millrace.readsLag is not empty if KEDA reads the lag from NATS. With a measured rate, KEDA needs the lag only to start the first pod. */}}
{{- define "millrace.readsLag" -}}
{{- if or (not (include "millrace.byMeasuredRate" .)) (eq (int64 .Values.autoscaling.minReplicas) 0) -}}
yes
{{- end -}}
{{- end }}

{{/* millrace.byMeasuredRate is not empty if the number of pods follows the recording rule with the measured rate. */}}
{{- define "millrace.byMeasuredRate" -}}
{{- with .Values.autoscaling -}}
{{- if and (eq (int64 .lagThreshold) 0) (or (eq .mode "hpa") (and (eq .mode "keda") .keda.prometheus.serverAddress)) -}}
yes
{{- end -}}
{{- end -}}
{{- end }}
