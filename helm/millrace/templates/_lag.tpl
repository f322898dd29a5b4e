{{/*
millrace.maxTriggers returns the maximum number of partitions whose lags KEDA may read. Each query reads the state of all consumers. So KEDA
reads 7 MB every 15 s for 64 partitions, and would read 113 MB for 256 partitions.
*/}}
{{- define "millrace.maxTriggers" -}}64{{- end }}

{{/* millrace.partitionNames returns the names of the triggers for the partitions' lags (p0, p1 and so on) as a JSON list. */}}
{{- define "millrace.partitionNames" -}}
{{- $names := list -}}
{{- range $partition := until (int .Values.config.partitions) -}}
{{- $names = append $names (printf "p%d" $partition) -}}
{{- end -}}
{{ toJson $names }}
{{- end }}

{{/*
millrace.lag returns the settings of KEDA's nats-jetstream scaler, which must all be text. Its lag is the number of undelivered messages plus the
number of messages in flight. While the consumer doesn't exist, the scaler fails and the number of pods doesn't change. With a measured rate and
minReplicas=0, this scaler only starts the first pod, and keeps the pod while there is a lag. Its threshold is then so high that it never
requests a second pod.
*/}}
{{- define "millrace.lag" -}}
{{- $keda := .root.Values.autoscaling.keda -}}
natsServerMonitoringEndpoint: {{ $keda.natsServerMonitoringEndpoint | quote }}
account: {{ $keda.account | quote }}
stream: {{ .root.Values.config.stream | trim | quote }}
consumer: {{ .consumer | quote }}
lagThreshold: {{ include "millrace.byMeasuredRate" .root | empty | ternary (include "millrace.lagThreshold" .root) "1000000000000" | quote }}
activationLagThreshold: {{ int64 $keda.activationLagThreshold | quote }}
useHttps: {{ $keda.useHttps | quote }}
{{- end }}

{{/*
millrace.wantedPods returns the settings of KEDA's prometheus scaler, which must all be text. Its query gives the number of pods that the job
needs (files/rules.yaml). Without a series, the scaler fails and the number of pods doesn't change. Without pods, there is never a series. So a
release that may be scaled to zero treats a missing series as 0.
*/}}
{{- define "millrace.wantedPods" -}}
{{- $prometheus := .Values.autoscaling.keda.prometheus -}}
serverAddress: {{ $prometheus.serverAddress | quote }}
query: {{ printf "max(job:millrace_wanted_pods:max1h{%s})%s" (include "millrace.ownSeries" .) (eq (int64 .Values.autoscaling.minReplicas) 0 | ternary " or vector(0)" "") | quote }}
threshold: "1"
ignoreNullValues: "false"
{{- with $prometheus.metadata }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/*
millrace.metricLabels returns the labels that select the external metric of the HorizontalPodAutoscaler. By default, this is the label that the
release's own recording rules add. The label `job` isn't suitable, because it may contain a slash, which Kubernetes doesn't accept in selectors.
*/}}
{{- define "millrace.metricLabels" -}}
{{- $name := .Values.autoscaling.hpa.metricName -}}
{{- if .Values.autoscaling.hpa.metricLabels -}}
{{ toYaml .Values.autoscaling.hpa.metricLabels }}
{{- else if and (or (include "millrace.byMeasuredRate" .) (eq $name "millrace_lag")) .Values.prometheusRule.enabled (include "millrace.scrapeJob" .) -}}
deployment: {{ include "millrace.fullname" . }}
{{- end -}}
{{- end }}

{{/* millrace.metricProblems checks that the external metric belongs to the release, and that the metric and its target count the same thing. */}}
{{- define "millrace.metricProblems" -}}
{{- $name := .Values.autoscaling.hpa.metricName }}
{{- $measured := eq (int64 .Values.autoscaling.lagThreshold) 0 }}
{{- if and $measured (has $name (list "millrace_consumer_pending" "millrace_lag")) }}
autoscaling.hpa.metricName is {{ $name }}, a number of messages, but the target is one pod per wanted pod: set autoscaling.hpa.metricName=millrace_wanted_pods, or autoscaling.lagThreshold to a number of messages
{{- else if and (not $measured) (eq $name "millrace_wanted_pods") }}
autoscaling.lagThreshold is a number of messages, but autoscaling.hpa.metricName is millrace_wanted_pods, a number of pods: set autoscaling.hpa.metricName=millrace_lag, or leave autoscaling.lagThreshold at 0
{{- else if and (has $name (list "millrace_consumer_pending" "millrace_lag" "millrace_wanted_pods")) (not (include "millrace.metricLabels" .)) }}
autoscaling.hpa.metricLabels is empty, so the autoscaler would follow {{ $name }} of every release: set {{ eq $name "millrace_consumer_pending" | ternary "" "prometheusRule.enabled=true with podMonitor.enabled=true (or serviceMonitor.enabled or prometheusRule.job), or " }}autoscaling.hpa.metricLabels to labels that only this release's series have
{{- end }}
{{- end }}
