{{/*
How many payloads can be in flight, that is delivered and not yet acknowledged. Scaling and the consumer's bound depend on it.
The factors are the worker's own: docs/adr/0009-many-batches-in-hand.md.
*/}}

{{/* How many devices a pod drives. */}}
{{- define "millrace.devices" -}}
{{ eq .Values.gpu.mode "none" | ternary 1 .Values.gpu.count | int64 }}
{{- end }}

{{/* How many payloads fill one batch of each lane of a pod. */}}
{{- define "millrace.fullLanes" -}}
{{ mul (include "millrace.devices" .) .Values.config.lanes .Values.config.batchPayloads }}
{{- end }}

{{/* How many pods there can be. */}}
{{- define "millrace.maxPods" -}}
{{ eq .Values.autoscaling.mode "none" | ternary .Values.replicaCount .Values.autoscaling.maxReplicas | int64 }}
{{- end }}

{{/*
The consumer's MaxAckPending. All pods share one consumer with shared delivery, so it is what the worker would ask for by itself
(8 batches a lane) for each of them, as far as the variable goes. With exclusive delivery each partition has a consumer of its own,
and 0 leaves it to the worker.
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
The most that one pod can have in flight: 16 batches a lane between pull and acknowledgement, two pull requests of 4096 messages on
their way, and 256 messages between the two, of each partition that it may have; and never more than the consumer allows.
*/}}
{{- define "millrace.window" -}}
{{- $consumers := eq .Values.config.delivery "exclusive" | ternary .Values.config.partitions 1 -}}
{{- $held := add (mul 16 (include "millrace.fullLanes" .)) (mul 8448 $consumers) -}}
{{- $allowed := include "millrace.maxAckPending" . | int64 -}}
{{ gt $allowed 0 | ternary (min $held $allowed) $held }}
{{- end }}

{{/* The lag for each pod above which another pod is wanted. */}}
{{- define "millrace.lagThreshold" -}}
{{- if gt (int64 .Values.autoscaling.lagThreshold) 0 -}}
{{ int64 .Values.autoscaling.lagThreshold }}
{{- else -}}
{{ mulf (include "millrace.window" .) .Values.autoscaling.lagFactor | ceil | int64 }}
{{- end -}}
{{- end }}
