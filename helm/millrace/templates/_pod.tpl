{{/* Settings that the workers' pods share with the pod of helm test. */}}

{{/* The argument is the root context. */}}
{{- define "millrace.podSettings" -}}
{{- with .Values.image.pullSecrets -}}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{ end -}}
serviceAccountName: {{ include "millrace.serviceAccountName" . }}
automountServiceAccountToken: false
# A Service called millrace would add variables such as MILLRACE_PORT to the pods, which the worker doesn't know.
enableServiceLinks: false
{{- with .Values.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
securityContext:
  {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with include "millrace.tolerations" . }}
{{ . }}
{{- end }}
{{- with .Values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
volumes:
  {{- include "millrace.volumes" . | nindent 2 }}
{{- end }}

{{/* millrace.topologySpread applies constraints without a labelSelector to the pods of the Deployment. */}}
{{- define "millrace.topologySpread" -}}
{{- $selector := dict "matchLabels" (include "millrace.selectorLabels" . | fromYaml) -}}
{{- $constraints := list -}}
{{- range .Values.topologySpreadConstraints -}}
{{- $constraints = append $constraints (merge (deepCopy .) (dict "labelSelector" $selector)) -}}
{{- end -}}
{{- with $constraints -}}
topologySpreadConstraints:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end }}
