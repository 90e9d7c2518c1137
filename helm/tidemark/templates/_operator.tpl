{{- define "tidemark.scaleHook" -}}
helm.sh/hook: pre-upgrade,pre-rollback
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}

{{- /* Pod of a Job that runs tidemark k8s with an account. Arguments: root, account. */ -}}
{{- define "tidemark.operatorPod" -}}
{{- $v := .root.Values -}}
serviceAccountName: {{ .account }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with $v.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
volumes:
  - name: tmp
    emptyDir: {sizeLimit: 16Mi}
  - name: token
    projected:
      sources:
        - serviceAccountToken: {path: token, expirationSeconds: 3600}
        - configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}
  {{- if $v.tls.enabled }}
  - name: certificate
    secret: {secretName: {{ include "tidemark.certificateSecret" (dict "root" .root "role" "operator") }}, defaultMode: 0440}
  {{- end }}
{{- end -}}

{{- /* Container of such a pod. */ -}}
{{- define "tidemark.operatorContainer" -}}
{{- include "tidemark.containerSecurity" . }}
env:
  - {name: HOME, value: /tmp}
  {{- if .Values.tls.enabled }}
  {{- include "tidemark.ownCertificate" . | nindent 2 }}
  {{- end }}
volumeMounts:
  - {name: tmp, mountPath: /tmp}
  - {name: token, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
  {{- if .Values.tls.enabled }}
  - {name: certificate, mountPath: /etc/tidemark-certificate, readOnly: true}
  {{- end }}
{{- end -}}
