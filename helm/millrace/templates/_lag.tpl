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
change.
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
