{{/* millrace.partitionNames returns the names of the triggers for the partitions' lags (p0, p1 and so on) as a JSON list. */}}
{{- define "millrace.partitionNames" -}}
{{- $names := list -}}
{{- range $partition := until (int .Values.config.partitions) -}}
{{- $names = append $names (printf "p%d" $partition) -}}
{{- end -}}
{{ toJson $names }}
{{- end }}

{{/*
millrace.lag returns the settings of KEDA's nats-jetstream scaler, which must all be text. Its lag is the number of messages that the
consumer has yet to deliver plus those in flight. While the consumer doesn't exist, the scaler fails and the number of pods doesn't
change. With a measured rate this scaler only starts the first pod, and keeps it while there is a lag. Its threshold is then so high that
it never wants a second one.
*/}}
{{- define "millrace.lag" -}}
{{- $keda := .root.Values.autoscaling.keda -}}
natsServerMonitoringEndpoint: {{ $keda.natsServerMonitoringEndpoint | quote }}
account: {{ $keda.account | quote }}
stream: {{ .root.Values.config.stream | quote }}
consumer: {{ .consumer | quote }}
lagThreshold: {{ include "millrace.byMeasuredRate" .root | empty | ternary (include "millrace.lagThreshold" .root) "1000000000000" | quote }}
activationLagThreshold: {{ int64 $keda.activationLagThreshold | quote }}
useHttps: {{ $keda.useHttps | quote }}
{{- end }}

{{/*
millrace.wantedPods returns the settings of KEDA's prometheus scaler, which must all be text. Its query gives the number of pods that the
job needs (files/rules.yaml). Without a series the scaler fails and the number of pods doesn't change. Without pods there is never a
series, so a release that may be scaled to zero takes that as 0.
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
millrace.metricLabels returns the labels that select the external metric of the HorizontalPodAutoscaler. By default that is the label
which the release's own recording rule adds: the job may contain a slash, which Kubernetes accepts in no selector.
*/}}
{{- define "millrace.metricLabels" -}}
{{- if .Values.autoscaling.hpa.metricLabels -}}
{{ toYaml .Values.autoscaling.hpa.metricLabels }}
{{- else if and (include "millrace.byMeasuredRate" .) .Values.prometheusRule.enabled (include "millrace.scrapeJob" .) -}}
deployment: {{ include "millrace.fullname" . }}
{{- end -}}
{{- end }}
