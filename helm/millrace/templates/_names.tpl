{{/* Names and labels of all objects. */}}

{{- define "millrace.name" -}}
{{ .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* millrace.fullname has at most 50 characters, which leaves room for suffixes and for the names of pods. */}}
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

{{/* millrace.releaseLabels returns the labels that all pods of a release share, including the pod of helm test. */}}
{{- define "millrace.releaseLabels" -}}
app.kubernetes.io/name: {{ include "millrace.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/*
millrace.selectorLabels returns the labels that only the workers' pods have. They must never change, because a Deployment's selector can't
change.
*/}}
{{- define "millrace.selectorLabels" -}}
{{ include "millrace.releaseLabels" . }}
app.kubernetes.io/component: worker
{{- end }}

{{- define "millrace.labels" -}}
{{ include "millrace.releaseLabels" . }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{/* millrace.podLabels returns the labels of the workers' pods that are not in the Deployment's selector. */}}
{{- define "millrace.podLabels" -}}
{{- with merge (dict) (.Values.podLabels | default dict) (.Values.commonLabels | default dict) -}}
{{ toYaml . }}
{{- end -}}
{{- end }}

{{- define "millrace.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "millrace.fullname" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end -}}
{{- end }}

{{- define "millrace.image" -}}
{{- $suffix := include "millrace.wantsNVRTC" . | empty | ternary "" "-nvrtc" -}}
{{- $repository := include "millrace.repository" . -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ printf "%s@%s" $repository .digest }}
{{- else -}}
{{ printf "%s:%s%s" $repository (.tag | default $.Chart.AppVersion | trimSuffix $suffix) $suffix }}
{{- end -}}
{{- end -}}
{{- end }}

{{/*
millrace.repository returns image.repository with global.imageRegistry in place of its registry. As in Docker, the first part of a name is a
registry if it contains a dot or a colon, or is localhost.
*/}}
{{- define "millrace.repository" -}}
{{- $repository := .Values.image.repository -}}
{{- with get (.Values.global | default dict) "imageRegistry" -}}
{{ printf "%s/%s" . (regexReplaceAll "^([^/]*[.:][^/]*|localhost)/" $repository "") }}
{{- else -}}
{{ $repository }}
{{- end -}}
{{- end }}

{{/* millrace.pullSecrets returns the names of all Secrets for pulling images, as a JSON list. */}}
{{- define "millrace.pullSecrets" -}}
{{- $names := list -}}
{{- range concat (.Values.image.pullSecrets | default list) (.Values.imagePullSecrets | default list) (get (.Values.global | default dict) "imagePullSecrets" | default list) -}}
{{- if kindIs "string" . -}}
{{- $names = append $names . -}}
{{- else -}}
{{- $names = append $names .name -}}
{{- end -}}
{{- end -}}
{{ $names | compact | uniq | toJson }}
{{- end }}
