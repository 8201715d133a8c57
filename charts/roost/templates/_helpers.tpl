{{/* Pods' annotations can be tied to their node: tokens name it from 1.32 on. */}}
{{- define "roost.annotates" -}}
{{- $has := semverCompare ">=1.32.0-0" .Capabilities.KubeVersion.Version -}}
{{- if and .Values.kubernetes.enabled .Values.kubernetes.statusAnnotation $has }}true{{ end -}}
{{- end -}}
