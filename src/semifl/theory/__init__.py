"""The paper's analysis of strong augmentation as code: one problem family, one estimator, and what the theorem says."""
