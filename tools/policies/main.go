// Package main enforces NetworkPolicies on a node: the controller of kube-router for them, and nothing else of it.
package main

import (
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/cloudnativelabs/kube-router/v2/pkg/controllers/netpol"
	"github.com/cloudnativelabs/kube-router/v2/pkg/healthcheck"
	"github.com/cloudnativelabs/kube-router/v2/pkg/options"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

func run(kubeconfig, node, services string) error {
	config := options.NewKubeRouterConfig()
	config.HostnameOverride, config.ClusterIPCIDRs, config.EnableIPv4 = node, []string{services}, true
	config.IPTablesSyncPeriod = time.Minute
	reached, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	clients, err := kubernetes.NewForConfig(reached)
	if err != nil {
		return err
	}
	watched := informers.NewSharedInformerFactory(clients, 0)
	pods, policies := watched.Core().V1().Pods().Informer(), watched.Networking().V1().NetworkPolicies().Informer()
	namespaces := watched.Core().V1().Namespaces().Informer()
	stop := make(chan struct{})
	watched.Start(stop)
	watched.WaitForCacheSync(stop)
	tables, sets, err := netpol.NewIPTablesHandlers(config)
	if err != nil {
		return err
	}
	var ofSets sync.Mutex
	controller, err := netpol.NewNetworkPolicyController(clients, config, pods, policies, namespaces, &ofSets, tables, sets)
	if err != nil {
		return err
	}
	for informer, handler := range map[cache.SharedIndexInformer]cache.ResourceEventHandler{
		pods: controller.PodEventHandler, policies: controller.NetworkPolicyEventHandler,
		namespaces: controller.NamespaceEventHandler,
	} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return err
		}
	}
	beats := make(chan *healthcheck.ControllerHeartbeat)
	go func() {
		for range beats {
		}
	}()
	var running sync.WaitGroup
	running.Add(1)
	controller.Run(beats, stop, &running)
	return nil
}

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: policies KUBECONFIG NODE SERVICES")
		os.Exit(64)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3]); err != nil {
		fmt.Fprintln(os.Stderr, "policies:", err)
		os.Exit(1)
	}
}
