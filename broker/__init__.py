"""The trusted side of airlock: policy, stage, engines, evidence and attempts."""
