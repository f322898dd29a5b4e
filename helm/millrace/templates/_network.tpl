{{/* This file checks that the NetworkPolicy permits the connections that the values require. */}}

{{/* millrace.permits returns a text if the NetworkPolicy permits TCP to a port. The argument is a dict with the policy and the port. */}}
{{- define "millrace.permits" -}}
{{- $port := int64 .port -}}
{{- range .policy.natsPorts -}}
{{- if eq (int64 .) $port }}yes{{ end -}}
{{- end -}}
{{- range .policy.extraEgress -}}
{{- $ports := get . "ports" -}}
{{- if not $ports }}yes{{ end -}}
{{- range $ports | default list -}}
{{- $first := get . "port" -}}
{{- $last := get . "endPort" | default $first -}}
{{- if ne (get . "protocol" | default "TCP") "TCP" -}}
{{- else if or (not $first) (and (kindIs "string" $first) (not (regexMatch "^[0-9]+$" $first))) -}}
yes
{{- else if and (ge $port (int64 $first)) (le $port (int64 $last)) -}}
yes
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{- define "millrace.networkProblems" -}}
{{- $policy := .Values.networkPolicy }}
{{- if $policy.enabled }}
{{- range include "millrace.addresses" . | fromJsonArray }}
{{- $port := include "millrace.portOf" . }}
{{- if not (include "millrace.permits" (dict "policy" $policy "port" $port)) }}
nats.url has port {{ $port }}, to which networkPolicy permits no connection: set networkPolicy.natsPorts={{ printf "{%s}" $port }}
{{- end }}
{{- end }}
{{- range .Values.extraEnv }}
{{- $port := get . "value" | default "" | toString | regexFind ":[0-9]{1,5}(/|$)" | trimPrefix ":" | trimSuffix "/" }}
{{- if and (regexMatch "^OTEL_EXPORTER_OTLP_(TRACES_)?ENDPOINT$" .name) $port }}
{{- if not (include "millrace.permits" (dict "policy" $policy "port" $port)) }}
extraEnv has {{ .name }} with port {{ $port }}, to which networkPolicy permits no connection: add a rule with that port to networkPolicy.extraEgress
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
