{{/*
This file checks combinations of values, because a schema can't express such checks well. It reports all problems at once.
*/}}

{{- define "millrace.check" -}}
{{- include "millrace.checkNulls" . -}}
{{- include "millrace.refuse" (include "millrace.problems" .) -}}
{{- end }}

{{/* millrace.checkNulls fails if a value that other checks and templates need is missing, or if a value is unknown to the chart. */}}
{{- define "millrace.checkNulls" -}}
{{- include "millrace.oldDefaults" . -}}
{{- include "millrace.checkNames" . -}}
{{- include "millrace.refuse" (include "millrace.nullProblems" .) -}}
{{- end }}

{{/* millrace.refuse fails if there are problems. The argument has one problem in each line. */}}
{{- define "millrace.refuse" -}}
{{- $problems := compact (splitList "\n" .) -}}
{{- if $problems -}}
{{- fail (printf "\n%d %s in the values:\n  - %s" (len $problems) (eq (len $problems) 1 | ternary "problem" "problems") (join "\n  - " $problems)) -}}
{{- end -}}
{{- end }}

{{/*
millrace.oldDefaults fails if values that are new in this chart are missing, because helm upgrade --reuse-values uses the defaults of the
installed chart. These values must not be null.
*/}}
{{- define "millrace.oldDefaults" -}}
{{- range list "global" "revisionHistoryLimit" -}}
{{- if not (hasKey $.Values .) -}}
{{- fail (printf "\nthe values have no %s, so they are those of another version of this chart, or %s is null: upgrade with --reset-then-reuse-values, which keeps the values that you set, and not with --reuse-values" . .) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* millrace.problems returns one line for each problem. */}}
{{- define "millrace.problems" -}}
{{- include "millrace.imageProblems" . }}
{{- include "millrace.serverProblems" . }}
{{- include "millrace.embeddedProblems" . }}
{{- include "millrace.addressProblems" . }}
{{- include "millrace.secretProblems" .Values.nats }}
{{- include "millrace.nameProblems" . }}
{{- include "millrace.streamProblems" . }}
{{- include "millrace.boundProblems" . }}
{{- include "millrace.deviceProblems" . }}
{{- include "millrace.scaleProblems" . }}
{{- include "millrace.frameProblems" .Values.config }}
{{- include "millrace.watchProblems" . }}
{{- include "millrace.operatorProblems" . }}
{{- include "millrace.memoryProblems" . }}
{{- include "millrace.gpuProblems" . }}
{{- include "millrace.networkProblems" . }}
{{- include "millrace.extraProblems" . }}
{{- end }}

{{- define "millrace.imageProblems" -}}
{{- if not .Values.image.repository }}
image.repository is empty: set it to where you pushed the image, such as registry.example.com/millrace
{{- end }}
{{- end }}

{{- define "millrace.watchProblems" -}}
{{- range $name := list "podMonitor" "serviceMonitor" }}
{{- $monitor := get $.Values $name }}
{{- if and $monitor.enabled (gt (include "millrace.milliseconds" $monitor.scrapeTimeout | float64) (include "millrace.milliseconds" $monitor.interval | float64)) }}
{{ $name }}.scrapeTimeout is {{ $monitor.scrapeTimeout }}, more than its interval ({{ $monitor.interval }}), and the Prometheus operator would ignore the monitor: set at most {{ $monitor.interval }}
{{- end }}
{{- end }}
{{- if and .Values.podMonitor.enabled .Values.serviceMonitor.enabled }}
podMonitor.enabled and serviceMonitor.enabled are both set, so every pod would be scraped twice: set one of them
{{- end }}
{{- end }}

{{/* The argument is .Values.config. */}}
{{- define "millrace.frameProblems" -}}
{{- $paths := .keepFields }}
{{- if .field }}
{{- $paths = append $paths .field }}
{{- else if eq .fieldMissing "null" }}
config.fieldMissing has no effect without config.field: set both, or leave config.fieldMissing at reject
{{- end }}
{{- if ne .framing "arrow" }}
{{- range $path := $paths }}
{{- if or (has "" (splitList "." $path)) (gt (len (splitList "." $path)) 64) }}
config.field or config.keepFields has {{ $path | quote }}, which has an empty name or too many: set a name such as text, or a path such as doc.body
{{- end }}
{{- end }}
{{- end }}
{{- range $path := .keepFields }}
{{- range $other := $.keepFields }}
{{- if hasPrefix (printf "%s." $other) $path }}
config.keepFields has {{ $other | quote }} and {{ $path | quote }}, which is part of it: name only one of them
{{- end }}
{{- end }}
{{- end }}
{{- if and .keepFields (eq .resultFormat "binary") }}
config.keepFields is set, and binary results have no fields: set config.resultFormat=json or arrow
{{- end }}
{{- end }}

{{- define "millrace.serverProblems" -}}
{{- $nats := .Values.nats }}
{{- $url := $nats.url | default "" }}
{{- $given := len (compact (list (trim $url) $nats.urlKey (empty $nats.embedded.enabled | ternary "" "embedded"))) }}
{{- if eq $given 0 }}
nats.url is empty: set it to the server's address, such as nats://nats:4222 (or nats.urlKey; or nats.embedded.enabled=true to try things out)
{{- else if gt $given 1 }}
nats.url, nats.urlKey and nats.embedded.enabled are mutually exclusive: set only one of them
{{- end }}
{{- if contains "@" $url }}
nats.url contains a user or password, which everybody who can read the Deployment would see: put the address into a Secret and set nats.existingSecret and nats.urlKey
{{- end }}
{{- end }}

{{/* The argument is .Values.nats. */}}
{{- define "millrace.secretProblems" -}}
{{- if and (or .urlKey .credsKey .nkeyKey) (not .existingSecret) }}
nats.existingSecret is empty, and urlKey, credsKey or nkeyKey names a key of it: set the Secret's name
{{- end }}
{{- if and .jsDomain .jsPrefix }}
nats.jsDomain and nats.jsPrefix are both set: unset one of them
{{- end }}
{{- if and .credsKey .nkeyKey }}
nats.credsKey and nats.nkeyKey are both set: unset one of them
{{- end }}
{{- if and (or .tls.caKey .tls.certKey .tls.keyKey) (not (or .tls.existingSecret .existingSecret)) }}
nats.tls.existingSecret is empty, and caKey, certKey or keyKey names a key of it: set the Secret's name
{{- end }}
{{- if ne (empty .tls.certKey) (empty .tls.keyKey) }}
nats.tls.certKey and nats.tls.keyKey must be set together: set both or neither
{{- end }}
{{- if and .existingSecret (not (or .urlKey .credsKey .nkeyKey)) (or .tls.existingSecret (not (or .tls.caKey .tls.certKey .tls.keyKey))) }}
nats.existingSecret is set but none of its keys is used: name a key (urlKey, credsKey, nkeyKey, or those of nats.tls)
{{- end }}
{{- end }}

{{- define "millrace.scaleProblems" -}}
{{- $pods := include "millrace.maxPods" . | int64 }}
{{- $many := include "millrace.manyStreams" .Values.config }}
{{- with .Values.autoscaling }}
{{- if and (ne .mode "none") (gt (int64 .minReplicas) (int64 .maxReplicas)) }}
autoscaling.minReplicas is {{ .minReplicas }}, more than maxReplicas ({{ .maxReplicas }}): set less
{{- end }}
{{- if and (eq .mode "keda") (include "millrace.readsLag" $) $many }}
config.stream names several streams, and KEDA would read the lag of only one from NATS: let KEDA query Prometheus for the lag of all streams (autoscaling.keda.prometheus.serverAddress, with autoscaling.minReplicas of at least 1 and autoscaling.lagThreshold=0)
{{- else if and (eq .mode "keda") (include "millrace.readsLag" $) (not .keda.natsServerMonitoringEndpoint) }}
autoscaling.keda.natsServerMonitoringEndpoint is empty: set it to host and monitoring port of a NATS server, such as nats.nats.svc:8222
{{- end }}
{{- if and (eq .mode "keda") .keda.prometheus.serverAddress (eq (int64 .lagThreshold) 0) (not (include "millrace.scrapeJob" $)) }}
autoscaling.keda.prometheus.serverAddress is set, but the chart doesn't know the label job of the workers' series: set podMonitor.enabled, serviceMonitor.enabled or prometheusRule.job
{{- end }}
{{- if eq .mode "hpa" }}
{{- include "millrace.metricProblems" $ }}
{{- end }}
{{- if and (eq .mode "hpa") (lt (int64 .minReplicas) 1) }}
autoscaling.minReplicas is 0, which a HorizontalPodAutoscaler does not accept: set at least 1, or autoscaling.mode=keda
{{- end }}
{{- end }}
{{- with .Values.config }}
{{- if and (eq .delivery "exclusive") (gt $pods (int64 .partitions)) }}
there can be {{ $pods }} pods for {{ .partitions }} partitions, and pods without a partition have nothing to do: lower replicaCount or autoscaling.maxReplicas, or raise config.partitions with the stream
{{- end }}
{{- if and (eq .delivery "exclusive") (eq $.Values.autoscaling.mode "keda") (include "millrace.readsLag" $) (not $many) (gt (int64 .partitions) (include "millrace.maxTriggers" $ | int64)) }}
config.partitions is {{ .partitions }}, and KEDA would read the lag from NATS with one query per partition, {{ include "millrace.maxTriggers" $ }} at most: let KEDA make one query to Prometheus (autoscaling.keda.prometheus.serverAddress, with autoscaling.minReplicas of at least 1 and autoscaling.lagThreshold=0), or set fewer partitions
{{- end }}
{{- end }}
{{- end }}
