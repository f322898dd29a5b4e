{{/*
A null value has no default, not even the default in values.yaml, and templates would fail with an error that doesn't name the value. This file
names the values that the chart needs. Other values may be null, because they are empty by default or Kubernetes works without them.
*/}}

{{/* millrace.needed returns the keys that each map of the values must have. helm/test compares them with values.yaml. */}}
{{- define "millrace.needed" -}}
"": [replicaCount, terminationGraceMarginSeconds]
image: [variant, pullPolicy]
gpu: [mode, count, resource]
gpu.mig: [resource]
gpu.shared: [resource]
gpu.dra: [deviceClassName]
nats.tls: []
nats.embedded: [dataDir, sizeLimit]
config:
  - stream
  - subjects
  - consumer
  - resultStream
  - resultPrefix
  - deadletterPrefix
  - commitPrefix
  - streamRetention
  - streamTrim
  - streamMaxAge
  - streamMaxBytes
  - resultMaxAge
  - resultMaxBytes
  - deadletterMaxAge
  - deadletterMaxBytes
  - provisionStorage
  - delivery
  - partitions
  - exactlyOnce
  - resultIds
  - ack
  - maxDeliver
  - ackWait
  - operators
  - resultFormat
  - annotateAs
  - stateRecords
  - stateBytes
  - stateLost
  - stateStandby
  - framing
  - fieldMissing
  - frameRecords
  - frameBytes
  - decompress
  - resultEncoding
  - devices
  - lanes
  - batchBytes
  - batchPayloads
  - linger
  - scratchLimit
  - memoryLimit
  - batchDeadlineMin
  - batchDeadlineMax
  - drainTimeout
  - logLevel
  - logFormat
operators.cache: [enabled, sizeLimit]
operators.results: []
http: [port]
probes: []
podDisruptionBudget: [enabled, maxUnavailable]
serviceAccount: [create]
autoscaling: [mode, minReplicas, maxReplicas, backlogSeconds, lagFactor]
autoscaling.keda: [account, pollingInterval, cooldownPeriod]
autoscaling.keda.prometheus: []
autoscaling.hpa: [metricName]
podMonitor: [interval, scrapeTimeout]
serviceMonitor: [interval, scrapeTimeout]
prometheusRule: [runbooks, operatorFaultsWindow]
prometheusRule.alerts:
{{- range (.Files.Get "files/rules.yaml" | fromYaml).groups }}
{{- range .rules }}
{{- with get . "alert" }}
  - {{ . }}
{{- end }}
{{- end }}
{{- end }}
dashboard: []
networkPolicy: [natsPorts]
test: [operators]
{{- end }}

{{/* millrace.nullProblems returns the null values that the chart needs. */}}
{{- define "millrace.nullProblems" -}}
{{- $paths := list }}
{{- range $path, $keys := include "millrace.needed" . | fromYaml }}
{{- $map := $.Values }}
{{- $at := list }}
{{- range compact (splitList "." $path) }}
{{- if kindIs "map" $map }}
{{- $at = append $at . }}
{{- $map = get $map . }}
{{- end }}
{{- end }}
{{- if not (kindIs "map" $map) }}
{{- $paths = append $paths (join "." $at) }}
{{- else }}
{{- range $keys }}
{{- if not (hasKey $map .) }}
{{- $paths = append $paths (append $at . | join ".") }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- range uniq $paths }}
{{ . }} is null, which removes its default: leave it out to keep the default, or set a value. After helm upgrade --reuse-values, use --reset-then-reuse-values
{{- end }}
{{- end }}
