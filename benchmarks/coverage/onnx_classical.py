"""Models of scikit-learn as ONNX files (ai.onnx.ml), by skl2onnx; run where both are installed."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from row import NotMadeError, Reading

import perfpass

TITLE = "scikit-learn by skl2onnx"
PACKAGES = ("scikit-learn", "skl2onnx", "onnx")
_ROWS, _FEATURES = 60, 10


def _made() -> dict[str, Callable[[], Any]]:
    from sklearn import (
        cluster,
        decomposition,
        ensemble,
        linear_model,
        naive_bayes,
        neighbors,
        neural_network,
        pipeline,
        preprocessing,
        svm,
        tree,
    )

    few: dict[str, Any] = {"n_estimators": 5}
    return {
        "LinearRegression": linear_model.LinearRegression,
        "LogisticRegression": linear_model.LogisticRegression,
        "Ridge": linear_model.Ridge,
        "SGDClassifier": linear_model.SGDClassifier,
        "DecisionTreeClassifier": tree.DecisionTreeClassifier,
        "DecisionTreeRegressor": tree.DecisionTreeRegressor,
        "RandomForestClassifier": lambda: ensemble.RandomForestClassifier(**few),
        "RandomForestRegressor": lambda: ensemble.RandomForestRegressor(**few),
        "GradientBoostingClassifier": lambda: ensemble.GradientBoostingClassifier(**few),
        "GradientBoostingRegressor": lambda: ensemble.GradientBoostingRegressor(**few),
        "HistGradientBoostingRegressor": lambda: ensemble.HistGradientBoostingRegressor(max_iter=5),
        "ExtraTreesClassifier": lambda: ensemble.ExtraTreesClassifier(**few),
        "IsolationForest": lambda: ensemble.IsolationForest(**few),
        "SVC": lambda: svm.SVC(),
        "SVR": svm.SVR,
        "LinearSVC": svm.LinearSVC,
        "GaussianNB": naive_bayes.GaussianNB,
        "KNeighborsClassifier": neighbors.KNeighborsClassifier,
        "KMeans": lambda: cluster.KMeans(3),
        "PCA": lambda: decomposition.PCA(3),
        "MLPClassifier": lambda: neural_network.MLPClassifier(max_iter=5),
        "MLPRegressor": lambda: neural_network.MLPRegressor(max_iter=5),
        "scaled LogisticRegression": lambda: pipeline.make_pipeline(
            preprocessing.StandardScaler(), linear_model.LogisticRegression()
        ),
        "normalised, imputed SVC": lambda: pipeline.make_pipeline(preprocessing.Normalizer(), svm.SVC()),
    }


def models() -> list[str]:
    """Names of estimators and pipelines."""
    return list(_made())


def read(model: str) -> Reading:
    """The estimator, fitted to random numbers, as a file of one row."""
    numbers = np.random.default_rng(0)
    data = numbers.random((_ROWS, _FEATURES)).astype("float32")
    try:
        from skl2onnx import to_onnx

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fitted = _made()[model]().fit(data, numbers.integers(0, 3, _ROWS))
            maps = hasattr(fitted, "classes_") and model != "LinearSVC"  # which skl2onnx gives no such option
            options = {"zipmap": False} if maps else {}  # maps are no tensors
            proto = to_onnx(fitted, data[:1], target_opset={"": 18, "ai.onnx.ml": 3}, options={id(fitted): options})
    except Exception as error:
        raise NotMadeError(f"not made: {type(error).__name__}: {error}") from error
    return Reading(perfpass.load(proto, batch=1))
