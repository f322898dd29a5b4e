{{/* This file checks the NATS server inside the pod. The server supports only one pod, and its streams must fit into their volume. */}}

{{- define "millrace.embeddedProblems" -}}
{{- $nats := .Values.nats }}
{{- if $nats.embedded.enabled }}
{{- if or $nats.jsDomain $nats.jsPrefix $nats.tls.first }}
nats.embedded.enabled is set with nats.jsDomain, nats.jsPrefix or nats.tls.first, and the server in the pod has no domain, one account and no TLS: leave them empty
{{- end }}
{{- if or $nats.existingSecret $nats.tls.existingSecret }}
nats.embedded.enabled is set with a Secret for NATS, and the server in the pod asks for no credentials: leave nats.existingSecret and nats.tls.existingSecret empty
{{- end }}
{{- if gt (include "millrace.maxPods" . | int64) 1 }}
nats.embedded.enabled is set for {{ include "millrace.maxPods" . }} pods, each of which would have its own server and streams: set replicaCount=1 and autoscaling.mode=none
{{- end }}
{{- include "millrace.storageProblems" . }}
{{- end }}
{{- end }}

{{/*
millrace.storageProblems compares the sizes of the streams with the volume of the server in the pod. The server sees the node's disk instead of
the volume's limit. Its files may be a ninth larger than the streams.
*/}}
{{- define "millrace.storageProblems" -}}
{{- $limit := .Values.nats.embedded.sizeLimit }}
{{- $streams := 0.0 }}
{{- $unlimited := false }}
{{- $inputs := include "millrace.patterns" .Values.config | fromJsonArray | len }}
{{- $outputs := regexMatch (include "millrace.placeholder" .) .Values.config.resultStream | ternary $inputs 1 }}
{{- range $key, $count := dict "streamMaxBytes" $inputs "resultMaxBytes" $outputs "deadletterMaxBytes" $outputs }}
{{- $bytes := include "millrace.sizeNumber" (get $.Values.config $key) | float64 }}
{{- $streams = mulf $bytes $count | addf $streams }}
{{- if eq $bytes 0.0 }}
{{- $unlimited = true }}
config.{{ $key }} is 0 with nats.embedded.enabled, so the stream would grow until Kubernetes evicts the pod, and all its data would be lost: set a size that fits into nats.embedded.sizeLimit ({{ $limit }})
{{- end }}
{{- end }}
{{- $needed := divf (mulf $streams 10) 9 }}
{{- if eq .Values.config.provisionStorage "memory" }}
config.provisionStorage is memory with nats.embedded.enabled, so the streams would take memory that the worker in the same container uses: set config.provisionStorage=file
{{- else if and (not $unlimited) (gt $needed (include "millrace.bytes" $limit | float64)) }}
nats.embedded.sizeLimit is {{ $limit }}, but the streams and their files may take {{ divf $needed 1048576 | ceil | int64 }}Mi, and Kubernetes evicts a pod whose volume exceeds its limit: raise it, or lower config.streamMaxBytes, config.resultMaxBytes or config.deadletterMaxBytes
{{- end }}
{{- end }}
