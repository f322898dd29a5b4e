package test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	keda "github.com/kedacore/keda/v2/apis/keda/v1alpha1"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"

	"millrace/internal/memory"
)

var (
	byKEDA = enough.with(values{"autoscaling.mode": "keda", "autoscaling.keda.natsServerMonitoringEndpoint": "nats:8222"})
	byHPA  = enough.with(values{"autoscaling.mode": "hpa", "podMonitor.enabled": true, "prometheusRule.enabled": true})
)

// capacityOf returns the parameters that determine a pod's capacity in flight.
func capacityOf(gpus, lanes, payloads, consumers int) *memory.Worker {
	return &memory.Worker{Slots: gpus * memory.SlotsPerLane * lanes, BatchPayloads: payloads, Consumers: consumers}
}

func number(t *testing.T, text string) int {
	t.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestWindowIsTheWorkers compares templates/_window.tpl with the worker's own figures.
func TestWindowIsTheWorkers(t *testing.T) {
	for _, gpus := range []int{1, 2, 8} {
		for _, lanes := range []int{1, 4, 64} {
			for _, payloads := range []int{1, 100, 8192} {
				for _, pods := range []int{1, 3} {
					set := values{"gpu.count": gpus, "config.lanes": lanes, "config.batchPayloads": payloads, "resources.limits.memory": "4Ti",
						"autoscaling.minReplicas": 1, "autoscaling.maxReplicas": pods, "autoscaling.lagFactor": 2}
					shared := capacityOf(gpus, lanes, payloads, 1)
					allowed := min(pods*shared.MaxAckPending(), maxAckPendingLimit)
					wantWindow(t, set, allowed, min(shared.InFlight(), allowed))

					const partitions = 7
					exclusive := set.with(values{"config.delivery": "exclusive", "config.partitions": partitions})
					wantWindow(t, exclusive, 0, capacityOf(gpus, lanes, payloads, partitions).InFlight())
				}
			}
		}
	}
}

// maxAckPendingLimit is the maximum of MILLRACE_MAX_ACK_PENDING.
const maxAckPendingLimit = 10_000_000

func threshold(t *testing.T, scaled *keda.ScaledObject) int {
	t.Helper()
	if modifiers := scaled.Spec.Advanced.ScalingModifiers; modifiers.Target != "" {
		return number(t, modifiers.Target)
	}
	return number(t, scaled.Spec.Triggers[0].Metadata["lagThreshold"])
}

// wantWindow checks MaxAckPending, and the lag threshold, which is twice the window.
func wantWindow(t *testing.T, set values, maxAckPending, window int) {
	t.Helper()
	list := objects(t, byKEDA.with(set))
	if got := number(t, environment(workerPod(t, list).Containers[0])["MILLRACE_MAX_ACK_PENDING"]); got != maxAckPending {
		t.Errorf("%v: MILLRACE_MAX_ACK_PENDING=%d, but the worker's default is %d", set, got, maxAckPending)
	}
	if got := threshold(t, find[*keda.ScaledObject](t, list)); got != 2*window {
		t.Errorf("%v: the threshold is %d with a lag factor of 2, and a worker can have %d in flight", set, got, window)
	}
}

// TestThresholdIsAboveOnePodsWindow checks many lanes, batches and GPUs. With a lower threshold, a busy pod would start
// another one.
func TestThresholdIsAboveOnePodsWindow(t *testing.T) {
	for _, gpus := range []int{1, 8} {
		for _, lanes := range []int{1, 4, 64} {
			for _, payloads := range []int{1, 8192, 1 << 20} {
				set := values{"gpu.count": gpus, "config.lanes": lanes, "config.batchPayloads": payloads, "resources.limits.memory": "4Ti"}
				env := workerEnvironment(t, byKEDA.with(set))
				window := min(capacityOf(gpus, lanes, payloads, 1).InFlight(), number(t, env["MILLRACE_MAX_ACK_PENDING"]))
				if got := threshold(t, find[*keda.ScaledObject](t, objects(t, byKEDA.with(set)))); got <= window || got > window*5/4+1 {
					t.Errorf("%d GPUs, %d lanes, %d payloads: the threshold is %d for a window of %d", gpus, lanes, payloads, got, window)
				}
			}
		}
	}
}

func TestThresholdOfOnesOwn(t *testing.T) {
	r := mustRender(t, byKEDA.with(values{"autoscaling.lagThreshold": 5000}))
	if got := find[*keda.ScaledObject](t, r.decode(t)).Spec.Triggers[0].Metadata["lagThreshold"]; got != "5000" {
		t.Errorf("lagThreshold %s, want 5000", got)
	}
	if !strings.Contains(r.notes, "autoscaling.lagThreshold (5000) is not above the number of payloads that one pod can have in flight") {
		t.Errorf("the notes don't say that the threshold is low:\n%s", r.notes)
	}
}

// TestConsumerHasRoomForEveryPod checks the consumer's MaxAckPending, which all pods share. By default, a worker
// requests eight batches per lane.
func TestConsumerHasRoomForEveryPod(t *testing.T) {
	for _, c := range []struct {
		set  values
		want string
	}{
		{values{}, "262144"},
		{values{"replicaCount": 3}, "786432"},
		{byHPA.with(values{"replicaCount": 3, "autoscaling.maxReplicas": 10}), "2621440"},
		{values{"replicaCount": 1000}, "10000000"},
		{values{"config.maxAckPending": 1000}, "1000"},
		{values{"config.delivery": "exclusive"}, "0"},
		{values{"gpu.mode": "none", "gpu.count": 8}, "262144"},
	} {
		if got := workerEnvironment(t, enough.with(c.set))["MILLRACE_MAX_ACK_PENDING"]; got != c.want {
			t.Errorf("%v: MILLRACE_MAX_ACK_PENDING=%s, want %s", c.set, got, c.want)
		}
	}
}

// TestPartitionsAreScaledTogether checks the triggers of a scaler. Each partition has a consumer, and one pod serves several partitions.
func TestPartitionsAreScaledTogether(t *testing.T) {
	spec := find[*keda.ScaledObject](t, objects(t, byKEDA.with(values{"config.delivery": "exclusive", "config.partitions": 5, "config.consumer": "c"}))).Spec
	if len(spec.Triggers) != 5 {
		t.Fatalf("%d triggers, want one for each of 5 partitions", len(spec.Triggers))
	}
	var names []string
	for p, trigger := range spec.Triggers {
		names = append(names, trigger.Name)
		if want := fmt.Sprintf("c-%d", p); trigger.Metadata["consumer"] != want {
			t.Errorf("trigger %d queries %s, want %s", p, trigger.Metadata["consumer"], want)
		}
	}
	modifiers := spec.Advanced.ScalingModifiers
	if want := strings.Join(names, " + "); modifiers.Formula != want {
		t.Errorf("formula %q, want %q", modifiers.Formula, want)
	}
	// One pod may own all partitions, including each partition's prefetched messages.
	if want := fmt.Sprint(capacityOf(1, 4, 8192, 5).InFlight() * 5 / 4); modifiers.Target != want {
		t.Errorf("target %s, want %s", modifiers.Target, want)
	}
}

// TestQueriesToNATSAreBounded checks the limit on queries. Each query to NATS reads the state of all consumers, and
// each partition needs one. One query to Prometheus covers all partitions.
func TestQueriesToNATSAreBounded(t *testing.T) {
	many := values{"config.delivery": "exclusive", "config.partitions": 65}
	for name, set := range map[string]values{
		"lag": byKEDA.with(many), "scaled to zero": byKEDA.with(measured).with(many).with(values{"autoscaling.minReplicas": 0}),
		"threshold": byKEDA.with(measured).with(many).with(values{"autoscaling.lagThreshold": 1_000_000}),
	} {
		_, err := render(t, set)
		if err == nil || !strings.Contains(err.Error(), "1 problem in the values:\n  - config.partitions is 65, and KEDA would read the lag from NATS with one query per partition, 64 at most: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	set := byKEDA.with(measured).with(many).with(values{"config.partitions": 256})
	if triggers := find[*keda.ScaledObject](t, objects(t, set)).Spec.Triggers; len(triggers) != 1 {
		t.Errorf("%d triggers with Prometheus, want 1", len(triggers))
	}
}

// TestKEDATakesWhatItIsTold runs KEDA's admission check, which compiles the formula with the trigger names.
func TestKEDATakesWhatItIsTold(t *testing.T) {
	for _, set := range []values{
		{}, {"autoscaling.minReplicas": 0, "autoscaling.keda.activationLagThreshold": 5_000_000}, measured, measured.with(values{"config.delivery": "exclusive"}),
		measured.with(values{"config.delivery": "exclusive", "autoscaling.minReplicas": 0}),
		{"config.delivery": "exclusive"}, {"config.delivery": "exclusive", "config.partitions": 64, "autoscaling.maxReplicas": 64},
	} {
		scaled := find[*keda.ScaledObject](t, objects(t, byKEDA.with(set)))
		err := errors.Join(keda.ValidateTriggers(scaled.Spec.Triggers), keda.CheckReplicaCountBoundsAreValid(scaled))
		if scaled.Spec.Advanced.ScalingModifiers.Formula != "" {
			_, compiled := keda.ValidateAndCompileScalingModifiers(scaled)
			err = errors.Join(err, compiled)
		}
		if err != nil {
			t.Errorf("%v: %v", set, err)
		}
		for _, trigger := range scaled.Spec.Triggers {
			if trigger.Type == "nats-jetstream" {
				number(t, trigger.Metadata["lagThreshold"])
				number(t, trigger.Metadata["activationLagThreshold"])
			}
		}
	}
}

// TestScalersHaveTheDeploymentToThemselves shows that the Deployment sets no replica count, which would undo the
// scaler's decisions at every upgrade.
func TestScalersHaveTheDeploymentToThemselves(t *testing.T) {
	for _, set := range []values{byKEDA, byHPA} {
		list := objects(t, set)
		deployment := find[*apps.Deployment](t, list)
		if deployment.Spec.Replicas != nil {
			t.Errorf("the Deployment sets %d replicas", *deployment.Spec.Replicas)
		}
		var target string
		if has[*keda.ScaledObject](list) {
			target = find[*keda.ScaledObject](t, list).Spec.ScaleTargetRef.Name
		} else {
			target = find[*autoscaling.HorizontalPodAutoscaler](t, list).Spec.ScaleTargetRef.Name
		}
		if target != deployment.Name {
			t.Errorf("the scaler scales %q, but the Deployment is %q", target, deployment.Name)
		}
	}
	if got := *find[*apps.Deployment](t, objects(t, enough.with(values{"replicaCount": 7}))).Spec.Replicas; got != 7 {
		t.Errorf("%d replicas, want 7", got)
	}
}
