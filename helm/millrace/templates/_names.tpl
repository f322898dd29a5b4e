{{/* Names and labels of every object. */}}

{{- define "millrace.name" -}}
{{ .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* 50 characters leave room for what is hung on and for the names of pods. */}}
{{- define "millrace.fullname" -}}
{{- $name := include "millrace.name" . -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else if contains $name .Release.Name -}}
{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" }}
{{- end -}}
{{- end }}

{{/* What all pods of a release have in common, the one of helm test too. */}}
{{- define "millrace.releaseLabels" -}}
app.kubernetes.io/name: {{ include "millrace.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* What the workers' pods alone have. It may never change: a Deployment's selector cannot. */}}
{{- define "millrace.selectorLabels" -}}
{{ include "millrace.releaseLabels" . }}
app.kubernetes.io/component: worker
{{- end }}

{{- define "millrace.labels" -}}
{{ include "millrace.releaseLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "millrace.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "millrace.fullname" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end -}}
{{- end }}

{{- define "millrace.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ printf "%s@%s" .repository .digest }}
{{- else -}}
{{ printf "%s:%s" .repository (.tag | default $.Chart.AppVersion) }}
{{- end -}}
{{- end -}}
{{- end }}
