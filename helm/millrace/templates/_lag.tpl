{{/* Names of the triggers for partitions' lags: p0, p1 and so on, as a JSON list. */}}
{{- define "millrace.partitionNames" -}}
{{- $names := list -}}
{{- range $partition := until (int .Values.config.partitions) -}}
{{- $names = append $names (printf "p%d" $partition) -}}
{{- end -}}
{{ toJson $names }}
{{- end }}

{{/*
What KEDA's nats-jetstream scaler is told. It takes text alone. Its lag is what the consumer has yet to deliver and what is in
flight. While the consumer is not there the scaler fails, and the count of pods stays what it is.
*/}}
{{- define "millrace.lag" -}}
{{- $keda := .root.Values.autoscaling.keda -}}
natsServerMonitoringEndpoint: {{ $keda.natsServerMonitoringEndpoint | quote }}
account: {{ $keda.account | quote }}
stream: {{ .root.Values.config.stream | quote }}
consumer: {{ .consumer | quote }}
lagThreshold: {{ include "millrace.lagThreshold" .root | quote }}
activationLagThreshold: {{ int64 $keda.activationLagThreshold | quote }}
useHttps: {{ $keda.useHttps | quote }}
{{- end }}
